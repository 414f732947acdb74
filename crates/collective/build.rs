//! Compiles the C interface to Gloo in libtorch.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "cargo talks to a build script by its output and its environment"
)]

fn main() {
    println!("cargo::rerun-if-changed=shim");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "gloo")]
    gloo();
}

#[cfg(feature = "gloo")]
fn gloo() {
    use std::path::PathBuf;

    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let libtorch =
        PathBuf::from(std::env::var_os("LIBTORCH").expect("LIBTORCH is set; `cargo xtask libtorch` fetches it"));
    let header = libtorch.join("include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp");
    assert!(header.is_file(), "{} is missing: this libtorch has no Gloo", header.display());
    println!("cargo::rerun-if-changed={}", header.display());
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        // The shim declares the Gloo types in libtorch's headers, and precedes a system-wide Gloo, if there is one.
        .include("shim")
        .include(libtorch.join("include"))
        .include(libtorch.join("include/torch/csrc/api/include"))
        .file("shim/gloo.cpp")
        .compile("collective_gloo");
    println!("cargo::rustc-link-search=native={}", libtorch.join("lib").display());
    println!("cargo::rustc-link-lib=torch_cpu");
    println!("cargo::rustc-link-lib=c10");
}
