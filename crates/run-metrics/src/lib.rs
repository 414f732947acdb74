//! Reads the metrics of a run from the Prometheus expositions of all processes.
//!
//! [`CounterRates`] holds the recent expositions of one process, and [`Processes`] computes values by role.
//! [`RunMetrics`] lists the metrics of a run at one time, [`DeviceUse`] the metrics of a device, and [`Health`] lost or
//! refused work. [`Meter`] computes them from scrapes, and sums counters over restarts and sessions.
//! [`bottleneck`] finds the part that limits a run. Missing values stay missing.
//!
//! The crate has neither clock nor connections: `fleet` requests the expositions. Screen, summary, studies and
//! benchmarks show the values. Start with [`RunMetrics`].

pub mod bottleneck;
mod devices;
mod health;
mod meter;
mod metrics;
mod processes;
mod rates;

pub use devices::DeviceUse;
pub use health::Health;
pub use meter::Meter;
pub use metrics::RunMetrics;
pub use processes::{DISTINCT, Processes, metric};
pub use rates::CounterRates;
