use super::*;

const LDD: &str = "\tlinux-vdso.so.1 (0x00007f9d2fc7b000)\n\
    \tlibtorch_cpu.so => /opt/torch/lib/libtorch_cpu.so (0x00007f9d00000000)\n\
    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f9d2ec1e000)\n\
    \t/lib64/ld-linux-x86-64.so.2 (0x00007f9d2fc7d000)\n";

fn paths(paths: &[&str]) -> BTreeSet<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

#[test]
fn libraries_are_of_the_system_or_of_libtorch() {
    let torch = Libraries(paths(&["/elsewhere/lib/libtorch_cpu.so", "/elsewhere/lib/libc10.so"]));
    let linked = parse(LDD).unwrap().system_and_other(&torch);
    let system = paths(&["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    assert_eq!(linked, Linked { system, torch: true });
    let without = parse("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n").unwrap().system_and_other(&torch);
    assert!(!without.torch);
    assert_eq!(parse("\tstatically linked\n").unwrap(), Libraries(BTreeSet::new()));
}

#[test]
fn a_library_that_is_missing_is_named() {
    let error = parse("\tlibc10.so => not found\n").unwrap_err().to_string();
    assert!(error.contains("libc10.so"), "{error}");
}

#[test]
fn scripts_of_the_linker_are_no_libraries() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libtorch.so"), "INPUT(-ltorch_cpu)").unwrap();
    fs::write(folder.path().join("libc10.so"), b"\x7fELF and more").unwrap();
    fs::write(folder.path().join("empty.so"), b"").unwrap();
    fs::write(folder.path().join("notes"), b"\x7fELF").unwrap();
    let found = Libraries::in_folder(folder.path()).unwrap();
    assert_eq!(found, Libraries([folder.path().join("libc10.so")].into()));
    let stamp = found.stamp().unwrap();
    fs::write(folder.path().join("libc10.so"), b"\x7fELF and another").unwrap();
    assert_ne!(Libraries::in_folder(folder.path()).unwrap().stamp().unwrap(), stamp);
}
