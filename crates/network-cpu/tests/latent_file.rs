//! Published MuZero networks as files: the predictions match the layers named in the file, in float64, and files of
//! another network are refused.

mod latent_layers;

use inference::{LatentModel, PrecisionPreference};
use latent_layers::agreement::{agrees, architectures};
use latent_layers::{Named, Tensors, architecture, file};
use network_cpu::{Error, Kernel, KernelVariant, LatentNetwork};
use weights::{Architecture, Manifest, Model, WeightsVersion};

fn manifest(architecture: &Architecture, bytes: &[u8]) -> Manifest {
    Manifest::of(bytes, WeightsVersion(3), 3, architecture.clone())
}

fn kernel() -> Kernel {
    Kernel::new(vec![KernelVariant::Avx512F32, KernelVariant::PortableF32], PrecisionPreference::F32)
}

#[test]
fn answers_are_those_of_the_layers_that_the_file_names() {
    for architecture in architectures() {
        let named = Named::random(&architecture);
        let bytes = file(&named.tensors);
        let mut evaluator = kernel().latent_evaluator(&manifest(&architecture, &bytes), &bytes).unwrap();
        assert_eq!(evaluator.attributes().weights_version, 3);
        agrees(&named, &mut evaluator);
    }
}

#[test]
fn threads_share_the_weights_of_a_version() {
    let architecture = architecture([5, 1, 1]);
    let bytes = file(&Named::random(&architecture).tensors);
    let (kernel, manifest) = (kernel(), manifest(&architecture, &bytes));
    assert_eq!(kernel.chosen_latent(), None);
    let [one, other] = [(); 2].map(|()| kernel.latent_evaluator(&manifest, &bytes).unwrap());
    assert!(std::sync::Arc::ptr_eq(one.network(), other.network()));
    assert_eq!(kernel.chosen_latent().unwrap().path, one.network().path());
}

#[test]
fn narrow_dense_networks_are_computed_in_float32_unless_bfloat16_is_named() {
    let path = |paths: &[KernelVariant], channels| {
        let architecture = Architecture { channels, ..architecture([5, 1, 1]) };
        let bytes = file(&Named::random(&architecture).tensors);
        let kernel = Kernel::new(paths.to_vec(), PrecisionPreference::default());
        kernel.latent_evaluator(&manifest(&architecture, &bytes), &bytes).unwrap().network().path()
    };
    let (both, bf16) = ([KernelVariant::Avx512Bf16, KernelVariant::PortableF32], KernelVariant::Avx512Bf16);
    assert_eq!(path(&both, 64), KernelVariant::PortableF32);
    if bf16.is_available() {
        assert_eq!([path(&both, 128), path(&[bf16], 64)], [bf16; 2]);
    }
}

#[test]
fn a_missing_and_an_additional_tensor_are_named() {
    for architecture in architectures() {
        let tensors = Named::random(&architecture).tensors;
        let read = |tensors: &Tensors| LatentNetwork::new(&architecture, &file(tensors), KernelVariant::PortableF32);
        for name in tensors.keys().cloned() {
            let mut fewer = tensors.clone();
            fewer.remove(&name);
            assert_eq!(read(&fewer).unwrap_err(), network::Error::MissingTensor { name }.into());
        }
        let mut more = tensors.clone();
        more.insert("dynamics.block.7.first.weight".to_owned(), (vec![1], vec![0.0]));
        let name = "dynamics.block.7.first.weight".to_owned();
        assert_eq!(read(&more).unwrap_err(), network::Error::UnexpectedTensor { name }.into());
    }
}

#[test]
fn a_network_of_another_model_or_size_is_refused_with_the_reason() {
    let muzero = architecture([2, 3, 4]);
    let bytes = file(&Named::random(&muzero).tensors);
    let alphazero = Architecture { model: Model::Alphazero, ..muzero.clone() };
    let error = kernel().latent_evaluator(&manifest(&alphazero, &bytes), &bytes).unwrap_err();
    assert_eq!(error, network::Error::Model { expected: "muzero" }.into());
    let error = kernel().evaluator(&manifest(&muzero, &bytes), &bytes).unwrap_err();
    assert_eq!(error, network::Error::Model { expected: "alphazero" }.into());
    let odd = Architecture { channels: 24, ..muzero.clone() };
    let error = kernel().latent_evaluator(&manifest(&odd, &bytes), &bytes).unwrap_err();
    assert!(matches!(error, Error::Unsupported { what: "channels", got: 24, .. }), "{error}");
    let other = Architecture { model: Model::Muzero { support: 8 }, ..muzero };
    let error = kernel().latent_evaluator(&manifest(&other, &bytes), &bytes).unwrap_err();
    assert!(matches!(error, Error::Network(network::Error::Shape { .. })), "{error}");
}
