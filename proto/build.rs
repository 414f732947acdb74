//! Generates messages, clients and servers from the .proto files, without a system protoc.

use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 5] = [
    "inference/grpc_service.proto",
    "zerofleet/inference/v1/inference.proto",
    "zerofleet/learners/v1/learners.proto",
    "zerofleet/replay/v1/replay.proto",
    "zerofleet/weights/v1/weights.proto",
];

/// The codec of every service, which checks some requests.
const CODEC: &str = "crate::codec::CheckedCodec";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Payloads share the receive buffer; settings are listed in order.
    tonic_prost_build::configure().bytes(".").btree_map(".zerofleet").codec_path(CODEC).compile_fds(descriptors)?;
    Ok(())
}
