//! The end of a process that has lost the accelerator, and the metric of the process that replaces it.

use std::fmt::Display;

use metrics::gauge;

/// Exit status of a process that has lost the accelerator. The supervisor starts the process again without it.
pub const EXIT_STATUS: i32 = 3;
/// Environment variable of a process that was started again for this reason.
pub const STARTED_AGAIN: &str = "ZEROFLEET_DEVICE_LOST";

/// Logs the reason and ends this process at once. CUDA reports a fault at a later call and then refuses all further
/// work, so that another device cannot be used in this process.
///
/// Nothing is freed and no thread is joined: calls of a driver may hang after a fault. Files are complete, because
/// every file is replaced as a whole.
pub fn end(reason: &dyn Display) -> ! {
    tracing::error!(%reason, "the device is lost");
    // SAFETY: the function takes a number and does not return.
    unsafe { libc::_exit(EXIT_STATUS) }
}

/// Exports whether this process was started again after the loss of a device.
pub(crate) fn export_metric() {
    if std::env::var_os(STARTED_AGAIN).is_some() {
        gauge!("zerofleet_device_lost").set(1.0);
    }
}
