//! Reads the metrics of a run from the Prometheus expositions of all processes.
//!
//! [`CounterRates`] holds the recent expositions of one process, and [`Processes`] computes values by role.
//! [`RunMetrics`] lists the metrics of a run at one time, [`DeviceUse`] the metrics of a device, and [`Health`] lost or
//! refused work. [`Meter`] computes them from scrapes, and sums counters over restarts and sessions. A
//! [`Roster`](roster::Roster) follows the processes of a fleet that it did not start, and [`rows`] lists them.
//! [`bottleneck`] finds the part that limits a run. [`History`] holds the recorded metrics of a run, and [`RunEvent`]
//! is one recorded event. [`charts`] plots the metrics and [`words`] formats them. Missing values stay missing.
//!
//! The crate has neither clock nor connections: `fleet` requests the expositions. Screen, summary, console, studies and
//! benchmarks show the values. Start with [`RunMetrics`].

pub mod bottleneck;
pub mod charts;
mod devices;
mod health;
mod history;
mod meter;
mod metrics;
mod processes;
mod rates;
pub mod roster;
pub mod rows;
pub mod words;

pub use devices::DeviceUse;
pub use health::Health;
pub use history::{History, RunEvent};
pub use meter::Meter;
pub use metrics::RunMetrics;
pub use processes::{DISTINCT, Processes, metric};
pub use rates::CounterRates;
