//! Linux calls of the chaos test: namespaces, tunnels and process limits. On other systems every call fails as not
//! supported.

use std::fs::File;
use std::io;

/// Moves the calling thread, and the threads and processes that it starts afterwards, into a new, unconnected network
/// namespace.
pub(super) fn unshare_network() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call takes a number and changes only the calling thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNET) })
    }
    #[cfg(not(target_os = "linux"))]
    Err(missing())
}

/// Gives the calling thread, and the threads and processes that it starts afterwards, a private mount namespace.
pub(super) fn unshare_mounts() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call takes a number and changes only the calling thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) })
    }
    #[cfg(not(target_os = "linux"))]
    Err(missing())
}

/// Moves the calling thread, and the threads and processes that it starts afterwards, into a network namespace.
pub(super) fn enter_network(handle: &File) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        // SAFETY: the descriptor is open for the duration of the call, which changes only the calling thread.
        done(unsafe { libc::setns(handle.as_raw_fd(), libc::CLONE_NEWNET) })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = handle;
        Err(missing())
    }
}

/// Opens a tunnel device in the network namespace of the calling thread. Each read of the file returns one packet that
/// the device sends, and each write is a packet that it receives. Reads do not block.
pub(super) fn open_tunnel(name: &str) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        // SAFETY: `ifreq` consists of numbers and characters, for which zero is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero and terminates the name.
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *to = libc::c_char::try_from(from).map_err(io::Error::other)?;
        }
        request.ifr_ifru.ifru_flags =
            libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI).map_err(io::Error::other)?;
        // SAFETY: the request has the type that this call requires, and outlives the call.
        done(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        Ok(file)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = name;
        Err(missing())
    }
}

/// Returns the major and minor number of a device.
pub(super) fn device_numbers(device: u64) -> (u32, u32) {
    #[cfg(target_os = "linux")]
    {
        (libc::major(device), libc::minor(device))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = device;
        (0, 0)
    }
}

/// A resource of a process that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// Number of a new descriptor, exclusive.
    Descriptors,
    /// Bytes of the address space.
    AddressSpace,
}

/// Sets the soft limit of a resource of a running process; returns the limit before.
pub(super) fn limit(process: u32, resource: Resource, limit: u64) -> io::Result<u64> {
    #[cfg(target_os = "linux")]
    {
        let resource = match resource {
            Resource::Descriptors => libc::RLIMIT_NOFILE,
            Resource::AddressSpace => libc::RLIMIT_AS,
        };
        let process = libc::pid_t::try_from(process).map_err(io::Error::other)?;
        let mut before = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the new limit is absent, and the place for the present one outlives the call.
        done(unsafe { libc::prlimit64(process, resource, std::ptr::null(), &raw mut before) })?;
        let new = libc::rlimit64 { rlim_cur: limit.min(before.rlim_max), ..before };
        // SAFETY: the new limit outlives the call, and the place for the old one is absent.
        done(unsafe { libc::prlimit64(process, resource, &raw const new, std::ptr::null_mut()) })?;
        Ok(before.rlim_cur)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (process, resource, limit);
        Err(missing())
    }
}

#[cfg(target_os = "linux")]
fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "only Linux has this")
}
