//! Generates messages, clients and servers from the .proto files, without a system protoc.

use std::path::PathBuf;

use prost::Message as _;

const FILES: [&str; 3] = [
    "zerofleet/inference/v1/inference.proto",
    "zerofleet/learners/v1/learners.proto",
    "zerofleet/weights/v1/weights.proto",
];

/// The replay service, with a codec that rejects inserts with unknown fields.
const REPLAY: &str = "zerofleet/replay/v1/replay.proto";
const REPLAY_CODEC: &str = "crate::replay::canonical::CanonicalCodec";

/// The service of the Open Inference Protocol, with a codec that rejects requests with too many parts.
const OPEN_INFERENCE: &str = "inference/grpc_service.proto";
const OPEN_INFERENCE_CODEC: &str = "crate::open_inference::PartsCodec";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let own = protox::compile(FILES, ["proto"])?;
    let replay = protox::compile([REPLAY], ["proto"])?;
    let open_inference = protox::compile([OPEN_INFERENCE], ["proto"])?;
    let mut descriptors = own.clone();
    descriptors.file.extend(replay.file.iter().chain(&open_inference.file).cloned());
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Payloads share the receive buffer.
    let configure = || tonic_prost_build::configure().bytes(".");
    configure().compile_fds(own)?;
    configure().codec_path(REPLAY_CODEC).compile_fds(replay)?;
    configure().codec_path(OPEN_INFERENCE_CODEC).compile_fds(open_inference)?;
    Ok(())
}
