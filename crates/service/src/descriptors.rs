//! The limit of open file descriptors; every connection uses one.

use std::io;

/// `EMFILE` of Linux and macOS, the error at the limit of this process.
const OF_PROCESS: i32 = 24;
/// `ENFILE`, the error at the limit of the whole machine.
const OF_MACHINE: i32 = 23;
/// Maximum soft limit on macOS (`OPEN_MAX`), which applies regardless of the hard limit.
const MACOS_MAX: libc::rlim_t = 10_240;

/// Raises the soft limit of this process to the hard limit. Many shells and service managers set 1024, for
/// compatibility with programs that use `select`, but a server of a thousand actors has more connections. Returns the
/// limit in effect, or `None` if the system does not report it.
pub fn raise_limit() -> Option<u64> {
    let limits = limits()?;
    let wanted = if cfg!(target_os = "macos") { limits.rlim_max.min(MACOS_MAX) } else { limits.rlim_max };
    if wanted <= limits.rlim_cur {
        return Some(limits.rlim_cur);
    }
    let raised = libc::rlimit { rlim_cur: wanted, rlim_max: limits.rlim_max };
    // SAFETY: setrlimit reads a struct of plain numbers, which lives until it returns.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, limit = limits.rlim_cur, wanted, "cannot raise the file descriptor limit");
        return Some(limits.rlim_cur);
    }
    Some(wanted)
}

/// Returns the current soft limit, or `None` if the system does not report it.
#[must_use]
pub fn limit() -> Option<u64> {
    limits().map(|limits| limits.rlim_cur)
}

/// Describes the exceeded limit and how to raise it; `None` for other errors.
#[must_use]
pub fn exhausted(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        OF_PROCESS => {
            let limit = limit().map_or_else(|| "RLIMIT_NOFILE".to_owned(), |limit| format!("RLIMIT_NOFILE, {limit}"));
            Some(format!(
                "file descriptor limit of this process reached ({limit}); raise the hard limit with `ulimit -Hn`, \
                 LimitNOFILE= of systemd or --ulimit nofile= of docker, or allow fewer connections"
            ))
        }
        OF_MACHINE => Some("open file limit of this machine reached (fs.file-max)".to_owned()),
        _ => None,
    }
}

fn limits() -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes a struct of plain numbers, which lives until it returns.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    (read == 0).then_some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be_and_stays_there() {
        let raised = raise_limit();
        assert!(raised.is_some_and(|limit| limit > 0), "{raised:?}");
        assert_eq!(limit(), raised);
        assert_eq!(raise_limit(), raised, "nothing is left to raise");
    }

    #[test]
    fn an_exhausted_limit_is_named_with_what_raises_it() {
        let message = exhausted(&io::Error::from_raw_os_error(OF_PROCESS)).unwrap();
        for word in ["RLIMIT_NOFILE", "ulimit", "LimitNOFILE=", "connections"] {
            assert!(message.contains(word), "{message}");
        }
        assert!(exhausted(&io::Error::from_raw_os_error(OF_MACHINE)).unwrap().contains("fs.file-max"));
        assert_eq!(exhausted(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
    }
}
