//! Runs the processes, each on a separate host, and injects faults into them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use experience::TrajectoryId;
use fleet::Role;
use fleet::wiring::{self, Wiring};
use tempfile::TempDir;

use super::cgroup::Group;
use super::checker::{Listing, violations_of_listing};
use super::clock::WallClock;
use super::disk::Disk;
use super::fault::{Fault, Service};
use super::growth::{At, Growth, all_grow, grow_while};
use super::ledger::Ledger;
use super::machine::Machine;
use super::member::{Around, Member, host};
use super::network::Network;
use super::recovery::Recovery;
use super::schedule::Round;
use super::secrets::Secrets;
use super::switch::Host;
use super::watch::{Promises, Watch};
use super::witness::Witnesses;
use crate::cluster::{SEED, SMALL_TIC_TAC_TOE, print_log};
use crate::process::{Output, Process};
use crate::trajectories::list;

/// Host of the test itself.
const HOME: Host = Host(0);
/// Admin port of each process, on the loopback of the host.
const ADMIN: u16 = 9100;
/// Starting libtorch on a busy machine takes a while.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// Time limit of a drain.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);
/// Time limit for an actor to resend trajectories that the server could not write, and interval between checks.
const GAPS_DEADLINE: Duration = Duration::from_secs(10);
const GAPS_INTERVAL: Duration = Duration::from_millis(100);
/// Disk size of a replay server: the data without faults, plus a share for each minute.
const DISK_MEBIBYTES: u64 = 48;
const DISK_MEBIBYTES_PER_MINUTE: u64 = 3;

const INSERTED: &str = "zerofleet_actor_inserted_total";
const STEPS: &str = "zerofleet_learner_steps_total";
const BY_SERVER: &str = "zerofleet_actor_remote_positions_total{by=\"server\"}";
const ARENA_VERSION: &str = "zerofleet_arena_weights_version";

/// Settings in addition to the small run file. No process waits for the rate limiter, so that a recovery time reflects
/// only the affected process, and two cores can bear the load.
const SETTINGS: [&str; 10] = [
    "replay.actor_inserts_per_second_max=20",
    "replay.samples_per_insert=4",
    "replay.error_items=100000",
    // Nothing leaves the window, so that everything is listed.
    "replay.window_items_min=4000000",
    "replay.archive_seconds=2",
    "actor.unacknowledged_max=16",
    "actor.replay_away_seconds_max=2",
    "arena.cpu_share=0.2",
    "arena.positions=50",
    "inference.threads=1",
];

/// All processes of a run on a private network, in a run directory that is deleted at the end. The logs are printed if
/// the test panics.
#[derive(Debug)]
pub struct Fleet {
    // Fields are dropped in this order: the processes stop before the network and the directory are removed.
    members: Vec<Member>,
    network: Network,
    secrets: Secrets,
    directory: TempDir,
}

impl Fleet {
    /// Returns the number of hosts: one for each process, and one for the test itself.
    #[must_use]
    pub fn hosts() -> u8 {
        let services = u8::try_from(Service::all().len()).expect("services are a handful");
        services + 1
    }

    /// Writes the run file and the credentials, and creates the processes without starting them. The calling process
    /// uses the credentials of an operator from then on. `length` is the duration of the test.
    ///
    /// # Errors
    /// A binary is missing, or the run directory cannot be made.
    pub fn new(network: Network, machine: &Machine, length: Duration) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir().context("make the run directory")?;
        let run = format!(
            "[run]\ngame = \"tic_tac_toe\"\nseed = {SEED}\ndirectory = \"{}\"\n{SMALL_TIC_TAC_TOE}",
            directory.path().display()
        );
        std::fs::write(directory.path().join("config.toml"), run).context("write config.toml")?;
        let names: Vec<String> =
            Service::all().into_iter().map(|service| host(service).address().to_string()).collect();
        let secrets = Secrets::new(&directory.path().join("secrets"), &names)?;
        transport::security::use_credentials(&secrets.of_operator())?;
        let minutes = length.as_secs().div_ceil(60);
        let site = Site {
            network: &network,
            secrets: &secrets,
            machine,
            directory: directory.path(),
            disk_mebibytes: DISK_MEBIBYTES + DISK_MEBIBYTES_PER_MINUTE * minutes,
        };
        let members = Service::all().into_iter().map(|service| site.member(service)).collect::<anyhow::Result<_>>()?;
        Ok(Self { members, network, secrets, directory })
    }

    /// Moves the calling thread, and the threads and processes that it starts afterwards, into a network namespace that
    /// reaches the fleet.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    pub fn enter(&self) -> anyhow::Result<()> {
        self.network.namespace(HOME).enter()
    }

    /// Starts every process, and waits until each makes progress.
    ///
    /// # Errors
    /// A process does not start.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        for member in &mut self.members {
            member.watch.begin_run(0.0);
            member.process.start()?;
            if matches!(member.service, Service::Replay(_) | Service::Learner | Service::Inference) {
                member.process.ready(START_DEADLINE)?;
            }
        }
        let mut growths: Vec<Growth> =
            self.members.iter().filter_map(|member| self.own_work(member.service)).map(|at| at.since(start)).collect();
        let _: Vec<Duration> = all_grow(&mut growths)?;
        Ok(())
    }

    /// Starts clients of all replay servers and of the learner. Must be called on a runtime with threads that have
    /// [entered](Self::enter) the network.
    #[must_use]
    pub fn witnesses(&self) -> Witnesses {
        Witnesses::start(&replay_endpoints(), &endpoint(Service::Learner), self.directory().join("weights"))
    }

    /// Returns the run directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Injects a round of faults and repairs all faults; returns the time of the last repair.
    ///
    /// # Errors
    /// A process cannot be restarted, or has exited by itself.
    pub fn suffer(&mut self, Round(faults): &Round) -> anyhow::Result<Instant> {
        let start = Instant::now();
        let mut events: Vec<(Duration, bool, Fault)> = faults
            .iter()
            .flat_map(|fault| [(fault.after, false, *fault), (fault.after + fault.length, true, *fault)])
            .collect();
        events.sort_by_key(|(at, ..)| *at);
        for (at, heals, fault) in events {
            // Faults are timed by the wall clock, so this test has to sleep.
            std::thread::sleep(at.saturating_sub(start.elapsed()));
            if heals { self.heal(fault)? } else { self.strike(fault)? }
        }
        Ok(Instant::now())
    }

    fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        let checkpointed = self.checkpointed(fault.service);
        let around = Around { network: &self.network, secrets: &self.secrets, checkpointed };
        self.members[usize::from(fault.service.index())].strike(fault, around)
    }

    fn heal(&mut self, fault: Fault) -> anyhow::Result<()> {
        let checkpointed = self.checkpointed(fault.service);
        let around = Around { network: &self.network, secrets: &self.secrets, checkpointed };
        self.members[usize::from(fault.service.index())].heal(fault, around)
    }

    /// Waits until all processes work again after a round with the last repair at `healed`.
    ///
    /// # Errors
    /// A process does not work again by the deadline.
    pub fn recover(&self, Round(faults): &Round, healed: Instant, witnesses: &Witnesses) -> anyhow::Result<Recovery> {
        // Growth is measured from zero only after a single fault: with two, the restarted process may have counted
        // before the other was repaired.
        let begins = |service| matches!(faults[..], [fault] if fault.service == service && fault.kind.ends_process());
        let work = |service: Service| {
            let at = self.own_work(service)?;
            // Only the count of inserts starts at zero with the process; all other metrics continue over restarts.
            Some(if begins(service) && at.metric == INSERTED { at.anew(healed) } else { at.since(healed) })
        };
        let own: Vec<Growth> = faults.iter().filter_map(|fault| work(fault.service)).collect();
        let actors: Vec<Growth> = Service::actors().into_iter().filter_map(&work).collect();
        let training: Vec<Growth> = work(Service::Learner).into_iter().collect();
        let struck = faults.iter().filter_map(|fault| match fault.service {
            Service::Replay(server) => Some(server),
            _ => None,
        });
        let before: Vec<(u8, u64)> = struck.map(|server| (server, witnesses.acknowledged(server))).collect();
        let (owns, acting) = (own.len(), actors.len());
        let mut growths: Vec<Growth> = own.into_iter().chain(actors).chain(training).collect();

        let mut witnessed = None;
        let times = grow_while(&mut growths, || {
            if witnessed.is_none() && before.iter().all(|&(server, count)| witnesses.acknowledged(server) > count) {
                witnessed = Some(healed.elapsed());
            }
            witnessed.is_some()
        })?;
        let greatest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        let seen = if before.is_empty() { Duration::ZERO } else { witnessed.unwrap_or_default() };
        Ok(Recovery {
            service: greatest(&times[..owns]).max(seen),
            actors: greatest(&times[owns..][..acting]),
            training: greatest(&times[owns + acting..]),
        })
    }

    /// Returns the counter for the work of a service; `None` for a replay server, which the witnesses measure.
    fn own_work(&self, service: Service) -> Option<At<'_>> {
        let last_actor = Service::actors().into_iter().next_back();
        let (of, metric) = match service {
            Service::Replay(_) => return None,
            Service::Learner => (service, STEPS),
            Service::Inference => (last_actor?, BY_SERVER),
            Service::Actor(_) => (service, INSERTED),
            Service::Arena => (service, ARENA_VERSION),
        };
        Some(At { watch: &self.members[usize::from(of.index())].watch, metric })
    }

    /// Returns the training step of the learner's latest finished checkpoint, and 0 for other services.
    fn checkpointed(&self, service: Service) -> f64 {
        if service != Service::Learner {
            return 0.0;
        }
        let entries = std::fs::read_dir(self.directory().join("checkpoints")).into_iter().flatten().flatten();
        let steps = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("step-")?.parse::<u32>().ok());
        steps.max().map_or(0.0, f64::from)
    }

    /// Checks that every acknowledged trajectory is stored exactly once; returns the violations since the last check.
    ///
    /// # Errors
    /// A replay server does not respond.
    pub async fn check(&self, witnesses: &Witnesses) -> anyhow::Result<Vec<String>> {
        // Acknowledgements are read before the lists, so that the lists contain all acknowledged trajectories.
        let acknowledged: Vec<_> = self.members.iter().map(|member| member.watch.acknowledged()).collect();
        let (start, mut faults) = (Instant::now(), Vec::new());
        let ledger = loop {
            let listings = self.list(witnesses).await?;
            let history = witnesses.history().operations();
            faults.extend(listings.iter().flat_map(|listing| violations_of_listing(&history, listing)));
            let ledger = Ledger::new(listings.into_iter().flat_map(|listing| listing.ids));
            // A server that could not write for a moment may store later trajectories of an actor first. The earlier
            // trajectories are not acknowledged, and the actor sends them again.
            if ledger.missing().is_empty() || start.elapsed() > GAPS_DEADLINE {
                break ledger;
            }
            tokio::time::sleep(GAPS_INTERVAL).await;
        };
        faults.extend(ledger.faults());
        for (member, acknowledged) in self.members.iter().zip(acknowledged) {
            if let Service::Actor(actor) = member.service {
                faults.extend(ledger.lost(u64::from(actor), &acknowledged));
            }
            faults.extend(member.watch.broken());
        }
        Ok(faults)
    }

    /// Lists the contents of each replay server.
    async fn list(&self, witnesses: &Witnesses) -> anyhow::Result<Vec<Listing>> {
        let mut listings = Vec::new();
        for (server, endpoint) in (0..).zip(replay_endpoints()) {
            let invoked = witnesses.history().now();
            let ids = list(&endpoint).await.context("list what is stored")?;
            listings.push(Listing { server, invoked, returned: witnesses.history().now(), ids });
        }
        Ok(listings)
    }

    /// Drains every process, actors first. Returns the contents of each replay server after the actors have drained,
    /// and all trajectories that are held, or spooled by an actor for the next start.
    ///
    /// # Errors
    /// A process does not drain, or an archive differs from the server.
    pub async fn finish(&mut self, witnesses: &Witnesses) -> anyhow::Result<(Vec<Listing>, Ledger)> {
        self.end(|service| matches!(service, Service::Actor(_)))?;
        let listings = self.list(witnesses).await?;
        let held: Vec<TrajectoryId> = listings.iter().flat_map(|listing| listing.ids.iter().copied()).collect();
        for (endpoint, listing) in replay_endpoints().iter().zip(&listings) {
            let (table, listed) = (proto::replay::stats(endpoint).await?, listing.ids.len());
            ensure!(table.trajectories_inserted_total == listed as u64, "{table:?}, but {listed} are held");
        }
        let spooled = (0..super::fault::ACTORS).flat_map(|actor| self.spooled(u64::from(actor)));
        // A trajectory that was stored but not acknowledged is sent again, and counts once.
        let spooled: Vec<TrajectoryId> = spooled.filter(|id| !held.contains(id)).collect();
        self.end(|service| service == Service::Arena)?;
        self.end(|service| service == Service::Inference)?;
        self.end(|service| service == Service::Learner)?;
        self.end(|service| matches!(service, Service::Replay(_)))?;
        self.restore(&listings, witnesses).await?;
        Ok((listings, Ledger::new(held.into_iter().chain(spooled))))
    }

    /// Starts every replay server with an empty directory, and checks that the archive restores all trajectories.
    async fn restore(&mut self, before: &[Listing], witnesses: &Witnesses) -> anyhow::Result<()> {
        for member in self.members.iter_mut().filter(|member| matches!(member.service, Service::Replay(_))) {
            let empty = self.directory.path().join(format!("{}-restored", member.process.name()));
            member.process.argue(&["--set", &format!("replay.directory={}", empty.display())]);
            member.process.start()?;
            member.process.ready(START_DEADLINE)?;
        }
        let restored = self.list(witnesses).await?;
        for (before, restored) in before.iter().zip(&restored) {
            let (held, server) = (before.ids.len(), before.server);
            ensure!(before.ids == restored.ids, "the archive of {server} has {} of {held}", restored.ids.len());
        }
        self.end(|service| matches!(service, Service::Replay(_)))
    }

    fn end(&mut self, who: impl Fn(Service) -> bool) -> anyhow::Result<()> {
        let mut those: Vec<&mut Member> = self.members.iter_mut().filter(|member| who(member.service)).collect();
        those.iter().for_each(|member| member.process.terminate());
        for member in &mut those {
            let Output { status, text } = member.process.ended(DRAIN_DEADLINE)?;
            ensure!(status.success(), "{} ended with {status}", member.service);
            ensure!(!text.contains("panicked at"), "{} has panicked", member.service);
        }
        Ok(())
    }

    /// Returns the trajectories that an actor has spooled for the next start.
    fn spooled(&self, actor: u64) -> Vec<TrajectoryId> {
        crate::trajectories::spooled(&self.home(actor).join("unacknowledged.spool"))
    }

    fn home(&self, actor: u64) -> std::path::PathBuf {
        self.directory().join("actors").join(actor.to_string())
    }

    /// Returns the lines at level ERROR, which means that a person must act, from every log with such lines.
    #[must_use]
    pub fn errors(&self) -> Vec<(Service, Vec<String>)> {
        let of = |member: &Member| {
            let text = member.process.log_text();
            let lines = text.lines().filter(|line| line.contains("ERROR")).map(str::to_owned);
            (member.service, lines.collect::<Vec<_>>())
        };
        self.members.iter().map(of).filter(|(_, lines)| !lines.is_empty()).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.members.iter().for_each(|member| print_log(&member.process));
        }
    }
}

fn endpoint(service: Service) -> String {
    format!("https://{}", listen(service))
}

fn replay_endpoints() -> Vec<String> {
    Service::replay_servers().into_iter().map(endpoint).collect()
}

fn listen(service: Service) -> String {
    let port = match service {
        Service::Replay(_) => 7001,
        Service::Learner => 7002,
        _ => 7003,
    };
    format!("{}:{port}", host(service).address())
}

/// Resources for creating the processes of a fleet.
struct Site<'a> {
    network: &'a Network,
    secrets: &'a Secrets,
    machine: &'a Machine,
    directory: &'a Path,
    disk_mebibytes: u64,
}

impl Site<'_> {
    /// Creates a process without starting it.
    fn member(&self, service: Service) -> anyhow::Result<Member> {
        let &Self { network, secrets, machine, directory, disk_mebibytes } = self;
        let name = service.to_string().replace(' ', "-");
        let (replay, learner) = (replay_endpoints(), endpoint(Service::Learner));
        let mut wiring = Wiring { replay, learner, ..Wiring::default() };
        let mut sets: Vec<String> = SETTINGS.iter().map(|&set| set.to_owned()).collect();
        sets.extend(secrets.settings(service));
        let mut disk = None;
        match service {
            Service::Actor(actor) => {
                sets.push(format!("actor.id={actor}"));
                wiring.inference = (actor + 1 == super::fault::ACTORS).then(|| endpoint(Service::Inference));
            }
            Service::Replay(_) => {
                let folder = directory.join(format!("{name}-disk"));
                sets.push(format!("replay.directory={}", folder.join("log").display()));
                sets.push(format!("replay.archive=file://{}", directory.join(format!("{name}-archive")).display()));
                disk = if machine.has_disks() { Some(Disk::mount(folder, disk_mebibytes)?) } else { None };
            }
            _ => {}
        }
        let role = service.role();
        let listen = matches!(role, Role::Replay | Role::Learner | Role::Inference).then(|| listen(service));
        let sets = sets.into_iter().chain(wiring.sets(role));
        let mut arguments = wiring::arguments(&directory.join("config.toml"), listen.as_deref(), sets);
        // An interrupted run leaves no process in the namespaces.
        arguments.push("--exit-with-parent".into());
        let namespace = network.namespace(host(service));
        let mut process = Process::new(&name, role.program(), arguments, ADMIN, directory)?;
        process.run_in(namespace.clone());
        let clock = machine.faketime.as_deref();
        let clock = clock.map(|library| WallClock::of(&mut process, library, directory.join(format!("{name}.clock"))));
        let memory = Group::new("memory", &name).ok();
        let watch = Watch::start(name, namespace, ADMIN, promises(service, directory))?;
        Ok(Member { service, process, watch, disk, clock: clock.transpose()?, limited: None, memory, reloads: 0 })
    }
}

fn promises(service: Service, directory: &Path) -> Promises {
    let never_falls = match service {
        Service::Replay(_) => None,
        Service::Learner => Some("zerofleet_learner_weights_version"),
        Service::Inference => Some("zerofleet_inference_weights_version"),
        Service::Actor(_) => Some("zerofleet_actor_weights_version"),
        Service::Arena => Some(ARENA_VERSION),
    };
    let epoch = |actor: u8| directory.join("actors").join(actor.to_string()).join("epoch");
    let acknowledged = match service {
        Service::Actor(actor) => Some((INSERTED, epoch(actor))),
        _ => None,
    };
    let falls_to_floor = (service == Service::Learner).then_some(STEPS);
    Promises { never_falls, falls_to_floor, acknowledged }
}
