//! Generates messages, clients and servers from the .proto files, without a system protoc.

use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 2] = ["zerofleet/replay/v1/replay.proto", "zerofleet/weights/v1/weights.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Payloads share the receive buffer.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
