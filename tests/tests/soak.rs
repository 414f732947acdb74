//! Runs a fleet under load for hours and fails if memory, descriptors, threads, disk or latency grow.
#![cfg(target_os = "linux")]

use std::path::PathBuf;
use std::time::Duration;

use tests::soak::Soak;
use tests::trend::Trend;

/// Default duration, which is short enough for CI.
const SECONDS: u64 = 12;
/// Minimum duration for judging growth: before it, tables, caches and heaps still fill.
const JUDGED_FROM: Duration = Duration::from_secs(20 * 60);

/// `ZEROFLEET_SOAK_SECONDS` is the duration, and `ZEROFLEET_SOAK_REPORT` the directory for samples and table.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[allow(clippy::print_stderr, reason = "a run of hours shows its table")]
async fn a_fleet_under_load_grows_in_no_resource() {
    let length = std::env::var("ZEROFLEET_SOAK_SECONDS").map_or(SECONDS, |text| text.parse().unwrap());
    let length = Duration::from_secs(length);
    let folder = std::env::var_os("ZEROFLEET_SOAK_REPORT").map(PathBuf::from);
    let mut soak = Soak::start(folder.as_deref()).unwrap();
    let interval = (length / 12).min(Duration::from_secs(10));
    let result = soak.run(length, interval).await;
    let trends = soak.trends();
    let table = Trend::table(&trends);
    eprintln!("{table}");
    // Samples up to a failure show how it came about.
    if let Some(folder) = folder {
        std::fs::write(folder.join("soak.md"), &table).unwrap();
    }
    result.unwrap();
    assert!(trends.len() >= 30, "each process, folder and client has samples: {}", trends.len());
    soak.finish().unwrap();
    let excessive: Vec<_> = trends.iter().filter(|trend| trend.is_excessive()).collect();
    assert!(length < JUDGED_FROM || excessive.is_empty(), "{table}");
}
