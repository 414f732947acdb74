//! Published MuZero networks as files: libtorch answers by the layers that the file names in float64, as the CPU kernel
//! does in its own test of the same name.

#[path = "../../network-cpu/tests/latent_layers/mod.rs"]
mod latent_layers;

use latent_layers::agreement::{agrees, architectures};
use latent_layers::{Named, file};
use network_torch::{Device, LibtorchLatent, Precision};
use weights::WeightsVersion;

#[test]
fn answers_are_those_of_the_layers_that_the_file_names() {
    for architecture in architectures() {
        let named = Named::random(&architecture);
        let bytes = file(&named.tensors);
        let version = WeightsVersion(3);
        let mut model =
            LibtorchLatent::new(&architecture, version, &bytes, Device::Cpu, Precision::F32).expect("a network");
        agrees(&named, &mut model);
    }
}
