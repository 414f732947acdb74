//! The run file, which every process of a fleet reads.

use std::fmt::Debug;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use service::ConfigError;
use service::config::{self, Layers, Sources};

/// Maximum bytes of an error, in addition to the quoted text.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// Checks that every process reads or refuses any text as a run file, and that a printed configuration is read back
/// with the same settings.
pub(crate) fn check(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("the system has a folder for temporary files");
    std::fs::write(file.path(), bytes).expect("the file is written");
    let layers = match read(file.path()) {
        Ok(layers) => layers,
        Err(error) => return is_short(&error, bytes),
    };
    let settings = |checked: Result<_, ConfigError>| checked.map_err(|error| is_short(&error, bytes)).is_ok();
    process(&layers, bytes, |config: &run_file::actor::Config| settings(config.settings().map(drop)));
    process(&layers, bytes, |config: &run_file::arena::Config| settings(config.settings().map(drop)));
    process(&layers, bytes, |config: &run_file::learner::Config| settings(config.settings().map(drop)));
    process(&layers, bytes, |config: &run_file::replay::Config| settings(config.settings().map(drop)));
    process(&layers, bytes, |config: &run_file::inference::Config| settings(config.settings().map(drop)));
}

fn read(path: &Path) -> Result<Layers, ConfigError> {
    let sources = Sources { file: Some(path.to_owned()), env: std::iter::empty(), sets: Vec::new() };
    sources.read(games::preset)
}

/// Loads the configuration of one process, then loads the printed configuration.
fn process<C>(layers: &Layers, bytes: &[u8], is_valid: impl Fn(&C) -> bool)
where
    C: Serialize + DeserializeOwned + Default + Debug,
{
    let config: C = match layers.load() {
        Ok(config) => config,
        Err(error) => return is_short(&error, bytes),
    };
    let valid = is_valid(&config);
    let printed = config::print(&config).expect("what was read from TOML is written as TOML");
    let file = tempfile::NamedTempFile::new().expect("the system has a folder for temporary files");
    std::fs::write(file.path(), &printed).expect("the file is written");
    let again: C = read(file.path()).and_then(|layers| layers.load()).expect("a printed configuration is a run file");
    // NaN is not equal to itself, and is printed like any other number.
    assert_eq!(format!("{again:?}"), format!("{config:?}"), "{printed}");
    assert_eq!(is_valid(&again), valid);
}

fn is_short(error: &ConfigError, bytes: &[u8]) {
    let length = error.to_string().len();
    assert!(length <= ERROR_BYTES_MAX + 4 * bytes.len(), "an error of {length} bytes: {error}");
}

/// Returns run files with keys of every section.
#[allow(dead_code, reason = "used by the test of the corpus alone")]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "[run]\ngame = \"hex-5\"\nseed = 7\ndirectory = \"runs/a\"\n\n[network]\nblocks = 2\nchannels = 32\n",
        "[replay]\nsamples_per_insert = 2\nmin_items = 100\n\n[[replay.tables]]\nname = \"recent\"\nselector = \"max_heap\"\n",
        "[selfplay]\nresign_threshold = -0.95\n[search]\nalgorithm = \"gumbel\"\n[learner]\nbatch_size = 64\n",
        "[run]\ngame = \"gym:CartPole-v1\"\n[environment]\nobservation = [4]\nactions = 2\n",
        "[run]\ngame = \"cartpole\"\ndiscount = 0.997\n[search]\nroot = \"gumbel\"\n",
        "[actor]\nthreads = 2\n[inference]\ndevice = \"cuda:1\"\nkernel = \"avx2-f32\"\n[security]\ntokens = \"t\"\n",
        "[replay]\nage_max_hours = nan\nexponent = inf\narchive = \"file:///tmp/a\"\n[telemetry]\nshare = 1e400\n",
        "run = 5\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
