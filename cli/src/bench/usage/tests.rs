use super::*;

const STAT: &str = "77 (tokio ) worker) S 1 77 77 0 -1 4194560 900 0 0 0 250 50 7 7 20 0 5 0 1000 0 0";

#[test]
fn a_name_may_hold_brackets() {
    assert_eq!(name_and_ticks(STAT), Some(("tokio ) worker".to_owned(), 300)));
}

#[test]
fn what_makes_no_sense_is_not_known() {
    for text in ["", "77", "77 (a", "77 (a) S 1 2", "77 (a) S 1 77 77 0 -1 4194560 900 0 0 0 x 50 7"] {
        assert_eq!(name_and_ticks(text), None, "{text}");
    }
    assert_eq!(memory_bytes("VmPeak: 5 kB\nVmRSS:\t 12 kB\nThreads: 3", "VmRSS:"), Some(12 * 1024));
    assert_eq!(memory_bytes("VmPeak: 5 kB\nVmHWM:\t 14 kB", "VmHWM:"), Some(14 * 1024));
    assert_eq!(memory_bytes("VmRSS: a lot", "VmRSS:"), None);
    assert_eq!(in_folder(Path::new("/nowhere"), 100.0), None);
}

#[test]
fn a_process_is_read_with_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("stat", STAT);
    write("status", "VmRSS: 4 kB");
    write("task/78/stat", "78 (train) R 1 77 77 0 -1 0 0 0 0 0 100 20 0 0");
    write("task/79/stat", "gone");
    let train = ThreadUsage { id: 78, name: "train".to_owned(), cpu_seconds: 1.2 };
    let usage = Usage { cpu_seconds: 3.0, threads: vec![train], memory_bytes: Some(4096) };
    assert_eq!(in_folder(folder.path(), 100.0), Some(usage));
}

#[cfg(target_os = "linux")]
#[test]
fn this_process_is_found() {
    let usage = of(std::process::id()).unwrap();
    assert!(!usage.threads.is_empty() && usage.memory_bytes.unwrap() > 0, "{usage:?}");
}
