use game::ObservationShape;
use tonic::Code;

use super::*;

fn model() -> Model {
    Model {
        game: "connect_four".to_owned(),
        shape: ObservationShape { planes: 3, height: 6, width: 7 },
        actions: 7,
        versions: vec![3, 4, 12],
        newest: 12,
        batch_max: 64,
        positions_max: 256,
        evaluator: "scripted".into(),
    }
}

#[test]
fn an_empty_version_is_the_newest_and_a_number_is_that_one() {
    assert_eq!(resolve(Some(model()), "connect_four", "").unwrap().1, None);
    assert_eq!(resolve(Some(model()), "connect_four", "4").unwrap().1, Some(4));
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    for (model, name, version, code, words) in [
        (None, "connect_four", "", Code::Unavailable, ["no weights", "yet"]),
        (Some(model()), "chess", "", Code::NotFound, ["`chess`", "`connect_four`"]),
        (Some(model()), "", "", Code::NotFound, ["``", "`connect_four`"]),
        (Some(model()), "connect_four", "5", Code::NotFound, ["version 5", "3, 4, 12"]),
        (Some(model()), "connect_four", "latest", Code::InvalidArgument, ["model_version", "`latest`"]),
        (Some(model()), "connect_four", "-1", Code::InvalidArgument, ["model_version", "`-1`"]),
        (Some(model()), "connect_four", "99999999999999999999", Code::InvalidArgument, ["model_version", "digits"]),
    ] {
        let status = resolve(model, name, version).unwrap_err();
        assert_eq!(status.code(), code, "{name} {version}: {status}");
        for word in words {
            assert!(status.message().contains(word), "`{}` does not say {word}", status.message());
        }
    }
}

#[test]
fn a_long_name_or_list_does_not_make_a_long_status() {
    let status = resolve(Some(model()), &"ä".repeat(1 << 20), "").unwrap_err();
    assert!(status.message().len() < 512, "{} bytes", status.message().len());
    let many = Model { versions: (0..100_000).collect(), ..model() };
    let status = resolve(Some(many), "connect_four", "100000").unwrap_err();
    assert!(status.message().contains("99999 and 99992 older ones"), "{}", status.message());
}

#[test]
fn metadata_has_the_batch_dimension_and_config_has_not() {
    let metadata = metadata(&model());
    let shapes: Vec<_> =
        metadata.inputs.iter().chain(&metadata.outputs).map(|t| (&*t.name, &*t.datatype, &*t.shape)).collect();
    assert_eq!(
        shapes,
        [
            ("observations", "FP32", &[-1, 3, 6, 7][..]),
            ("legal", "BOOL", &[-1, 7]),
            ("priors", "FP32", &[-1, 7]),
            ("wdl", "FP32", &[-1, 3]),
            ("value", "FP32", &[-1, 1]),
        ]
    );
    assert_eq!(metadata.versions, ["3", "4", "12"]);

    let config = config(&model());
    assert_eq!(config.max_batch_size, 256);
    let inputs: Vec<_> = config.input.iter().map(|t| (&*t.name, t.data_type(), &*t.dims, t.optional)).collect();
    let expected = [
        ("observations", v2::DataType::TypeFp32, &[3, 6, 7][..], false),
        ("legal", v2::DataType::TypeBool, &[7], true),
    ];
    assert_eq!(inputs, expected);
    let outputs: Vec<_> = config.output.iter().map(|t| (&*t.name, &*t.dims)).collect();
    assert_eq!(outputs, [("priors", &[7][..]), ("wdl", &[3]), ("value", &[1])]);
    assert_eq!(config.parameters["evaluator"].string_value, "scripted");
}

#[test]
fn the_index_has_each_resident_version_and_is_empty_without_weights() {
    let index = index(Some(&model()));
    let entries: Vec<_> = index.models.iter().map(|entry| (&*entry.name, &*entry.version, &*entry.state)).collect();
    assert_eq!(entries, ["3", "4", "12"].map(|version| ("connect_four", version, "READY")));
    assert_eq!(super::index(None).models, []);
}
