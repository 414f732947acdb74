//! Published versions as files: valid files are read, invalid files are rejected by name.

mod published;

use network_cpu::{Error, KernelVariant, Tower};
use published::{Tensors, architecture, file, tensors};

fn read(tensors: &Tensors) -> Result<Tower, Error> {
    Tower::new(&architecture(), &file(tensors), KernelVariant::PortableF32)
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
        assert_eq!(read(&tensors).unwrap_err(), network::Error::MissingTensor { name }.into());
    }
}

#[test]
fn a_tensor_that_does_not_belong_is_named() {
    let mut tensors = tensors();
    tensors.insert("block.3.first.norm.bias".to_owned(), (vec![1], vec![0.0]));
    assert_eq!(
        read(&tensors).unwrap_err(),
        Error::from(network::Error::UnexpectedTensor { name: "block.3.first.norm.bias".to_owned() })
    );
}

#[test]
fn a_wrong_shape_is_named() {
    for name in tensors().into_keys() {
        let mut tensors = tensors();
        let (shape, _) = tensors.get_mut(&name).unwrap();
        shape.push(1);
        assert!(
            matches!(read(&tensors), Err(Error::Network(network::Error::Shape { name: named, .. })) if named == name)
        );
    }
}

#[test]
fn numbers_that_are_not_finite_and_negative_variances_are_named() {
    for name in tensors().into_keys() {
        let mut tensors = tensors();
        let bad = if name.ends_with("variance") { -1.0 } else { f32::NAN };
        tensors.get_mut(&name).unwrap().1[0] = bad;
        assert!(
            matches!(read(&tensors), Err(Error::Network(network::Error::BadNumber { name: named, .. })) if named == name)
        );
    }
}

#[test]
fn bytes_that_are_no_file_are_refused() {
    let bytes = file(&tensors());
    for bad in [&bytes[..bytes.len() - 1], &bytes[..7], b"", b"not a file of tensors"] {
        assert!(matches!(
            Tower::new(&architecture(), bad, KernelVariant::PortableF32),
            Err(Error::Network(network::Error::Format(_)))
        ));
    }
}
