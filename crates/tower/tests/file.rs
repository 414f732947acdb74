//! Published versions as files: what is read, and what is refused by name.

use std::collections::BTreeMap;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tower::{Error, Path, Tower};
use weights::Architecture;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn architecture() -> Architecture {
    Architecture {
        game: "test".to_owned(),
        planes: 2,
        height: 3,
        width: 3,
        actions: 9,
        channels: 16,
        blocks: 3,
        squeeze_excitation: 4,
        global_pooling: 6,
    }
}

/// Every tensor that a network of [`architecture`] has, by the names and shapes that the network crate documents.
fn tensors() -> Tensors {
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|i| ((i * 7 % 13) as f32 - 6.0) / 40.0).collect();
        tensors.insert(name, (shape.to_vec(), values));
    };
    let mut convolution = |name: &str, outputs: usize, inputs: usize, side: usize| {
        add(format!("{name}.convolution.weight"), &[outputs, inputs, side, side]);
        for part in ["weight", "bias", "mean", "variance"] {
            add(format!("{name}.norm.{part}"), &[outputs]);
        }
    };
    convolution("stem", 16, 2, 3);
    for block in 0..3 {
        convolution(&format!("block.{block}.first"), 16, 16, 3);
        convolution(&format!("block.{block}.second"), 16, 16, 3);
    }
    convolution("policy", 32, 16, 1);
    convolution("value", 32, 16, 1);
    let mut layer = |name: &str, outputs: usize, inputs: usize| {
        add(format!("{name}.weight"), &[outputs, inputs]);
        add(format!("{name}.bias"), &[outputs]);
    };
    layer("block.2.pooling", 10, 12);
    for block in 0..3 {
        layer(&format!("block.{block}.excitation.hidden"), 4, 16);
        layer(&format!("block.{block}.excitation.output"), 32, 4);
    }
    layer("policy.output", 9, 9 * 32);
    layer("value.hidden", 64, 9 * 32);
    layer("value.output", 3, 64);
    for (name, (_, values)) in &mut tensors {
        if name.ends_with("variance") {
            values.iter_mut().for_each(|value| *value = value.abs() + 0.5);
        }
    }
    tensors
}

fn file(tensors: &Tensors) -> Vec<u8> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name.clone(), shape.clone(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a file")
}

fn read(tensors: &Tensors) -> Result<Tower, Error> {
    Tower::new(&architecture(), &file(tensors), Path::PortableF32)
}

#[test]
fn exactly_the_tensors_of_the_architecture_are_read() {
    read(&tensors()).unwrap();
}

#[test]
fn a_missing_tensor_is_named() {
    for name in tensors().into_keys() {
        let mut tensors = tensors();
        tensors.remove(&name);
        assert_eq!(read(&tensors).unwrap_err(), Error::MissingTensor { name });
    }
}

#[test]
fn a_tensor_that_does_not_belong_is_named() {
    let mut tensors = tensors();
    tensors.insert("block.3.first.norm.bias".to_owned(), (vec![1], vec![0.0]));
    assert_eq!(read(&tensors).unwrap_err(), Error::UnexpectedTensor { name: "block.3.first.norm.bias".to_owned() });
}

#[test]
fn a_wrong_shape_is_named() {
    for name in tensors().into_keys() {
        let mut tensors = tensors();
        let (shape, _) = tensors.get_mut(&name).unwrap();
        shape.push(1);
        assert!(matches!(read(&tensors), Err(Error::Shape { name: named, .. }) if named == name));
    }
}

#[test]
fn numbers_that_are_not_finite_and_negative_variances_are_named() {
    for name in tensors().into_keys() {
        let mut tensors = tensors();
        let bad = if name.ends_with("variance") { -1.0 } else { f32::NAN };
        tensors.get_mut(&name).unwrap().1[0] = bad;
        assert!(matches!(read(&tensors), Err(Error::BadNumber { name: named, .. }) if named == name));
    }
}

#[test]
fn bytes_that_are_no_file_are_refused() {
    let bytes = file(&tensors());
    for bad in [&bytes[..bytes.len() - 1], &bytes[..7], b"", b"not a file of tensors"] {
        assert!(matches!(Tower::new(&architecture(), bad, Path::PortableF32), Err(Error::Format(_))));
    }
}
