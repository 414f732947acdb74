//! `cargo xtask certs`: creates the credentials of a cluster: a certificate authority, signed certificates, and tokens.
//!
//! Each service has a separate directory with the same file names, so that one section `[security]` works for all
//! services and no container can read the keys of another. No service directory holds the key of the authority.
//! docs/security.md shows the same steps with `openssl`. Start with [`make`].

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedKey, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use tempfile::NamedTempFile;

/// User id under which processes in images run. The host needs no user with this id.
pub const USER: u32 = 10001;
/// Directory of the secrets that compose mounts.
pub const FOLDER: &str = "deploy/secrets";
/// Time by which the start of a certificate's validity lies in the past, for machines whose clock is slow.
const BACKDATED: Duration = Duration::from_secs(24 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Validity of the authority: longer than any run.
const AUTHORITY_DAYS: u32 = 3650;
const TOKEN_BYTES: usize = 32;

/// Exclusive upper bound of configured actor ids. Replicas share a token and draw 53-bit ids
/// (`actor.identity = "claimed"`); one in eight billion draws falls below the bound.
const CLAIMED_FIRST: u64 = 1 << 20;
const CLAIMED_LAST: u64 = (1 << 53) - 1;

/// Name and permissions of one service, for certificates and a token.
struct Role {
    /// DNS name in the certificates; `transport` defines the scopes of client certificates by these names.
    name: String,
    serves: bool,
    /// Scopes of the token; see docs/security.md.
    scopes: &'static str,
    /// The part ` actors=…` of the token line, which restricts inserts to these actor ids. If empty, any actor may
    /// insert, provided that the scopes allow inserts.
    actors: String,
}

impl Role {
    fn new(name: &str, serves: bool, scopes: &'static str) -> Self {
        Self { name: name.to_owned(), serves, scopes, actors: String::new() }
    }

    /// Returns all roles, including one for the replicas of an actor and one for each actor with a configured id.
    fn all(options: &Options) -> Vec<Self> {
        let scopes = if options.reanalysis { "act,revise,infer" } else { "act,infer" };
        let actor = |name: &str, ids| Self { actors: format!(" actors={ids}"), ..Self::new(name, false, scopes) };
        let mut roles = vec![
            Self::new("replay", true, ""),
            Self::new("learner", true, "train"),
            Self::new("inference", true, "infer"),
            actor("actor", format!("{CLAIMED_FIRST}-{CLAIMED_LAST}")),
            // The arena serves weights if it has a gate.
            Self::new("arena", true, "infer"),
            // Passes changes of visitors with the scope on to replay servers.
            Self::new("console", true, "admin"),
            // A human operator who runs `zerofleet`.
            Self::new("operator", false, "act,revise,train,infer,view,admin"),
        ];
        roles.extend((0..options.actors).map(|id| actor(&format!("actor-{id}"), id.to_string())));
        roles
    }
}

/// Options for creating certificates and tokens.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Output directory for certificates, keys and tokens.
    #[arg(long, default_value = FOLDER)]
    pub out: PathBuf,
    /// Additional DNS names or IP addresses of servers, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub names: Vec<String>,
    /// Validity of the certificates in days.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
    /// Number of actors with a fixed id to create credentials for.
    ///
    /// The actors have the ids (`actor.id`) 0, 1 and so on. No actor can insert under the id of another actor.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..CLAIMED_FIRST))]
    pub actors: u64,
    /// Permit actors to replace searches of stored trajectories (`reanalysis.share`).
    #[arg(long)]
    pub reanalysis: bool,
    /// Replace existing certificates and tokens, but keep the CA.
    ///
    /// The other options must be the same as in the first call.
    #[arg(long)]
    pub renew: bool,
}

/// Creates all credentials in the directory `out`: server certificates are valid for the role name, `localhost`,
/// 127.0.0.1, ::1 and `names`. Running processes reload renewed files.
///
/// # Errors
/// Secrets exist already and `renew` is false, or a file cannot be written.
pub fn make(options: &Options) -> Result<()> {
    let Options { out: folder, names, days, renew, .. } = options;
    if !renew && folder.join("authority").join("ca.pem").exists() {
        bail!("{} already contains secrets; pass --renew to replace certificates and tokens", folder.display());
    }
    create_folder(folder)?;
    let authority = Authority::of(&folder.join("authority"))?;
    let tokens = Role::all(options).into_iter().map(|role| Ok((role, token()?))).collect::<Result<Vec<_>>>()?;
    let clients = || tokens.iter().filter(|(role, _)| !role.scopes.is_empty());
    let known: String = clients().map(|(role, token)| known(role, token)).collect();
    let scopes: String = clients().map(|(role, _)| format!("{} {}{}\n", role.name, role.scopes, role.actors)).collect();
    // If root runs this, the files belong to the user of the images. Otherwise containers run as the user that created
    // the files (docs/cluster.md).
    let owner = (fs::metadata(folder).context("read the owner of the directory")?.uid() == 0).then_some(USER);
    for (role, token) in &tokens {
        let place = Place { folder: folder.join(&role.name), owner };
        place.create()?;
        place.write("ca.pem", &authority.certificate)?;
        place.write("token", token)?;
        let client =
            authority.sign(&role.name, std::slice::from_ref(&role.name), ExtendedKeyUsagePurpose::ClientAuth, *days)?;
        place.write("client.pem", &client.cert.pem())?;
        place.write("client.key", &client.signing_key.serialize_pem())?;
        if role.serves {
            let mut own = [&*role.name, "localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
            own.extend_from_slice(names);
            let server = authority.sign(&role.name, &own, ExtendedKeyUsagePurpose::ServerAuth, *days)?;
            place.write("server.pem", &server.cert.pem())?;
            place.write("server.key", &server.signing_key.serialize_pem())?;
            place.write("tokens", &known)?;
            place.write("client_scopes", &scopes)?;
        }
    }
    // Password of Grafana's users.
    let grafana = Place { folder: folder.join("grafana"), owner };
    grafana.create()?;
    grafana.write("password", &token()?)
}

/// Calls [`make`] unless there is an authority already.
///
/// # Errors
/// The errors of [`make`].
pub fn ensure(folder: &Path) -> Result<()> {
    if folder.join("authority").join("ca.pem").exists() {
        return Ok(());
    }
    eprintln!("certs: creating certificates and tokens in {}", folder.display());
    let (names, actors) = (Vec::new(), 0);
    make(&Options { out: folder.to_owned(), names, days: 365, actors, reanalysis: false, renew: false })
}

/// A certificate signed by the authority, with the private key.
type Signed = CertifiedKey<KeyPair>;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// Reads the authority in `folder`, or creates a new one.
    fn of(folder: &Path) -> Result<Self> {
        // Only the current user may read the key of the authority.
        let place = Place { folder: folder.to_owned(), owner: None };
        let (certificate_path, key_path) = (folder.join("ca.pem"), folder.join("ca.key"));
        let params = Self::params()?;
        if certificate_path.exists() {
            let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
            let key = KeyPair::from_pem(&read(&key_path)?).context("read the key of the authority")?;
            return Ok(Self { certificate: read(&certificate_path)?, issuer: Issuer::new(params, key) });
        }
        place.create()?;
        let key = KeyPair::generate().context("generate the key of the authority")?;
        let certificate = params.self_signed(&key).context("sign the certificate of the authority")?.pem();
        place.write("ca.key", &key.serialize_pem())?;
        // Written last: if the certificate exists, so does the key.
        place.write("ca.pem", &certificate)?;
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    fn params() -> Result<CertificateParams> {
        let mut params = CertificateParams::new(Vec::new()).context("describe the authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "zerofleet");
        valid(&mut params, AUTHORITY_DAYS)?;
        Ok(params)
    }

    fn sign(&self, name: &str, names: &[String], usage: ExtendedKeyUsagePurpose, days: u32) -> Result<Signed> {
        let mut params = CertificateParams::new(names.to_vec())
            .with_context(|| format!("set the names of {name}: {}", names.join(" ")))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        valid(&mut params, days)?;
        let signing_key = KeyPair::generate().with_context(|| format!("generate a key for {name}"))?;
        let cert =
            params.signed_by(&signing_key, &self.issuer).with_context(|| format!("sign the certificate of {name}"))?;
        Ok(Signed { cert, signing_key })
    }
}

fn valid(params: &mut CertificateParams, days: u32) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?;
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now + DAY * days;
    Ok(())
}

fn token() -> Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("no random bytes from the system"))?;
    Ok(hexadecimal(&bytes))
}

/// Formats a token as a line of a server's token file.
fn known(role: &Role, token: &str) -> String {
    let digest = digest::digest(&digest::SHA256, token.as_bytes());
    format!("{} {} {}{}\n", role.name, role.scopes, hexadecimal(digest.as_ref()), role.actors)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A directory of files that one user may read.
struct Place {
    folder: PathBuf,
    /// Owner of the files, if not the current user.
    owner: Option<u32>,
}

impl Place {
    fn create(&self) -> Result<()> {
        create_folder(&self.folder)?;
        self.hand_over(&self.folder)
    }

    /// Replaces a file atomically, so that a reading process sees either the old or the new contents.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let failed = || format!("write {}", path.display());
        // Created for the owner alone: no other user may read a partial file either.
        let mut file = NamedTempFile::new_in(&self.folder).with_context(failed)?;
        file.write_all(text.as_bytes()).with_context(failed)?;
        self.hand_over(file.path())?;
        file.persist(&path).with_context(failed)?;
        Ok(())
    }

    fn hand_over(&self, path: &Path) -> Result<()> {
        let Some(owner) = self.owner else { return Ok(()) };
        chown(path, Some(owner), Some(owner))
            .with_context(|| format!("change the owner of {} to user {owner}", path.display()))
    }
}

fn create_folder(path: &Path) -> Result<()> {
    let failed = || format!("create {}", path.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
        }
        found.sort();
        found
    }

    fn options(folder: &Path, renew: bool) -> Options {
        let names = vec!["fleet.example".to_owned()];
        Options { out: folder.to_owned(), names, days: 30, actors: 0, reanalysis: false, renew }
    }

    fn read(folder: &Path, name: &str) -> String {
        fs::read_to_string(folder.join(name)).unwrap()
    }

    #[test]
    fn every_service_has_its_credentials_and_authorities_and_no_other_user_may_read_them() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("secrets");
        make(&options(&folder, false)).unwrap();
        for role in Role::all(&options(&folder, false)) {
            let own = folder.join(&role.name);
            for name in ["ca.pem", "client.pem", "client.key", "token"] {
                assert!(own.join(name).exists(), "{name} of {}", role.name);
            }
            assert_eq!(own.join("server.key").exists(), role.serves, "{}", role.name);
            assert_eq!(own.join("tokens").exists(), role.serves, "{}", role.name);
            assert_eq!(own.join("client_scopes").exists(), role.serves, "{}", role.name);
            assert!(!own.join("ca.key").exists(), "the key of the authority is in no container");
        }
        for path in files(&folder) {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
    }

    #[test]
    fn servers_store_only_the_digests_of_tokens() {
        let scratch = tempfile::tempdir().unwrap();
        make(&options(scratch.path(), false)).unwrap();
        let tokens = read(scratch.path(), "replay/tokens");
        let token = read(scratch.path(), "actor/token");
        assert_eq!(token.len(), 2 * TOKEN_BYTES);
        assert!(!tokens.contains(&token));
        let digest = hexadecimal(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        let line = format!("actor act,infer {digest} actors=1048576-9007199254740991");
        assert!(tokens.lines().any(|known| known == line), "{tokens}");
    }

    #[test]
    fn actors_with_configured_ids_insert_as_themselves_and_only_those_of_reanalysis_revise() {
        let scratch = tempfile::tempdir().unwrap();
        make(&Options { actors: 2, reanalysis: true, ..options(scratch.path(), false) }).unwrap();
        let scopes = read(scratch.path(), "replay/client_scopes");
        for line in ["actor-0 act,revise,infer actors=0", "actor-1 act,revise,infer actors=1"] {
            assert!(scopes.lines().any(|known| known == line), "{scopes}");
        }
        assert!(scratch.path().join("actor-1/token").exists());
        make(&options(scratch.path(), true)).unwrap();
        let scopes = read(scratch.path(), "replay/client_scopes");
        assert!(scopes.contains("actor act,infer actors=") && !scopes.contains("actor-0"), "{scopes}");
    }

    #[test]
    fn existing_credentials_are_kept_unless_renewed_and_a_renewal_keeps_the_authority() {
        let scratch = tempfile::tempdir().unwrap();
        make(&options(scratch.path(), false)).unwrap();
        let before = files(scratch.path()).into_iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        let error = make(&options(scratch.path(), false)).unwrap_err().to_string();
        assert!(error.contains("--renew"), "{error}");
        ensure(scratch.path()).unwrap();
        let after = files(scratch.path()).into_iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        assert!(before == after, "nothing was touched");

        let of = |name| read(scratch.path(), name);
        let (authority, certificate, token) = (of("authority/ca.pem"), of("replay/server.pem"), of("actor/token"));
        make(&options(scratch.path(), true)).unwrap();
        assert_eq!(of("authority/ca.pem"), authority);
        assert_ne!((of("replay/server.pem"), of("actor/token")), (certificate, token));
    }
}
