//! Reads readiness and metrics of processes from their admin ports.

use std::net::SocketAddr;
use std::time::Duration;

use fleet::exposition::Exposition;

use super::sanitize::sanitize;

/// Timeout of a request; a process that takes longer is busy or gone.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest accepted response in bytes.
const BYTES_MAX: u64 = 4 << 20;
/// Length at which reasons are cut.
const REASON_LENGTH_MAX: usize = 200;
/// Number of processes polled at the same time.
const AT_ONCE_MAX: usize = 32;

/// The response of a process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Answer {
    /// The reason why the process is not ready; `None` if it is.
    pub(super) not_ready: Option<String>,
    pub(super) exposition: Exposition,
}

/// Polls processes with bounds on time and size, and without a proxy, whatever the environment sets.
#[derive(Debug)]
pub(super) struct Poller {
    agent: ureq::Agent,
}

impl Default for Poller {
    fn default() -> Self {
        let config = ureq::config::Config::builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        Self { agent: config.new_agent() }
    }
}

impl Poller {
    /// Polls all processes, some at the same time; the answers are in the order of `addresses`.
    pub(super) fn poll_all(&self, addresses: &[SocketAddr]) -> Vec<Option<Answer>> {
        let each = addresses.len().div_ceil(AT_ONCE_MAX).max(1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = addresses
                .chunks(each)
                .map(|chunk| scope.spawn(move || chunk.iter().map(|address| self.poll(*address)).collect::<Vec<_>>()))
                .collect();
            let lost = |chunk: &[SocketAddr]| vec![None; chunk.len()];
            threads
                .into_iter()
                .zip(addresses.chunks(each))
                .flat_map(|(thread, chunk)| thread.join().unwrap_or_else(|_| lost(chunk)))
                .collect()
        })
    }

    /// Polls one process; `None` on a timeout, an error or an invalid response.
    fn poll(&self, address: SocketAddr) -> Option<Answer> {
        let (status, metrics) = self.get(address, "metrics")?;
        if status != 200 {
            return None;
        }
        let (status, reason) = self.get(address, "readyz")?;
        let not_ready = (status != 200).then(|| sanitize(reason.lines().next().unwrap_or_default(), REASON_LENGTH_MAX));
        Some(Answer { not_ready, exposition: Exposition::parse(&metrics) })
    }

    fn get(&self, address: SocketAddr, path: &str) -> Option<(u16, String)> {
        let mut response = self.agent.get(format!("http://{address}/{path}")).call().ok()?;
        let body = response.body_mut().with_config().limit(BYTES_MAX).lossy_utf8(true).read_to_string().ok()?;
        Some((response.status().as_u16(), body))
    }
}
