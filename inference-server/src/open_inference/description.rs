//! Describes the model in protocol terms: a game is a model, and weights versions are model versions.

use proto::open_inference::v2;
use tonic::Status;

use super::request::{self, quoted};
use super::tensors::{Input, Output, name_of};
use crate::engine::Model;

/// Protocol name of the backend.
const PLATFORM: &str = "zerofleet";

/// The protocol extensions that are completely implemented.
const EXTENSIONS: [&str; 2] = ["model_configuration", "statistics"];

/// Returns the requested version; `None` for the latest.
///
/// # Errors
/// `NOT_FOUND` for another model and for a version that is not resident, `INVALID_ARGUMENT` for text that is not a
/// version, `UNAVAILABLE` before the first weights.
pub(super) fn resolve(model: Option<Model>, name: &str, version: &str) -> Result<(Model, Option<u64>), Status> {
    let model = model.ok_or_else(|| Status::unavailable("the server has no weights yet"))?;
    if name != model.game {
        let problem = format!("unknown model {}; this server has `{}`", quoted(name), model.game);
        return Err(Status::not_found(problem));
    }
    if version.is_empty() {
        return Ok((model, None));
    }
    let number = version.parse().map_err(|_| {
        Status::invalid_argument(format!(
            "model_version: {} is not a weights version in decimal digits",
            quoted(version)
        ))
    })?;
    if !model.versions.contains(&number) {
        let problem =
            format!("version {number} of `{}` is not loaded; loaded versions: {}", model.game, listed(&model.versions));
        return Err(Status::not_found(problem));
    }
    Ok((model, Some(number)))
}

/// Lists versions as `3, 4 and 5`; for a long list, only the latest versions and the number of older versions.
fn listed(versions: &[u64]) -> String {
    const SHOWN_MAX: usize = 8;
    let newest = &versions[versions.len().saturating_sub(SHOWN_MAX)..];
    let shown = newest.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match versions.len() - newest.len() {
        0 => shown,
        more => format!("{shown} and {more} older versions"),
    }
}

pub(super) fn server() -> v2::ServerMetadataResponse {
    v2::ServerMetadataResponse {
        name: PLATFORM.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    }
}

/// Returns the tensors of a model, with a batch of any size as the first dimension.
pub(super) fn metadata(model: &Model) -> v2::ModelMetadataResponse {
    let tensor = |name: &str, datatype: &str, dims: Vec<i64>| v2::model_metadata_response::TensorMetadata {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: [vec![-1], dims].concat(),
    };
    v2::ModelMetadataResponse {
        name: model.game.clone(),
        versions: model.versions.iter().map(u64::to_string).collect(),
        platform: PLATFORM.to_owned(),
        inputs: Input::ALL.map(|input| tensor(input.name(), name_of(input.datatypes()[0]), input.dims(model))).to_vec(),
        outputs: Output::ALL.map(|output| tensor(output.name(), "FP32", vec![output.width(model.actions)])).to_vec(),
    }
}

/// Returns the tensors without the batch dimension, and the batching of positions.
pub(super) fn config(model: &Model) -> v2::ModelConfig {
    let input = |input: Input| v2::ModelInput {
        name: input.name().to_owned(),
        data_type: input.datatypes()[0].into(),
        dims: input.dims(model),
        optional: input == Input::Legal,
        ..v2::ModelInput::default()
    };
    let output = |output: Output| v2::ModelOutput {
        name: output.name().to_owned(),
        data_type: v2::DataType::TypeFp32.into(),
        dims: vec![output.width(model.actions)],
        ..v2::ModelOutput::default()
    };
    let latest =
        v2::model_version_policy::Latest { num_versions: u32::try_from(model.versions.len()).unwrap_or(u32::MAX) };
    let evaluator = v2::ModelParameter { string_value: model.evaluator.as_ref().to_owned() };
    v2::ModelConfig {
        name: model.game.clone(),
        platform: PLATFORM.to_owned(),
        backend: PLATFORM.to_owned(),
        version_policy: Some(v2::ModelVersionPolicy {
            policy_choice: Some(v2::model_version_policy::PolicyChoice::Latest(latest)),
        }),
        max_batch_size: i32::try_from(request::positions_max(model)).unwrap_or(i32::MAX),
        input: Input::ALL.map(input).to_vec(),
        output: Output::ALL.map(output).to_vec(),
        scheduling_choice: Some(v2::model_config::SchedulingChoice::DynamicBatching(
            v2::ModelDynamicBatching::default(),
        )),
        parameters: [("evaluator".to_owned(), evaluator)].into(),
        model_transaction_policy: Some(v2::ModelTransactionPolicy { decoupled: false }),
        ..v2::ModelConfig::default()
    }
}

/// Returns the resident versions; empty before the first weights.
pub(super) fn index(model: Option<&Model>) -> v2::RepositoryIndexResponse {
    let entry = |model: &Model, version: &u64| v2::repository_index_response::ModelIndex {
        name: model.game.clone(),
        version: version.to_string(),
        state: "READY".to_owned(),
        reason: String::new(),
    };
    let entries = |model: &Model| model.versions.iter().map(|version| entry(model, version)).collect();
    v2::RepositoryIndexResponse { models: model.map(entries).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
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
    fn a_missing_model_or_version_is_named_with_the_available_ones() {
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
                assert!(status.message().contains(word), "`{}` does not contain {word}", status.message());
            }
        }
    }

    #[test]
    fn a_long_name_or_list_does_not_make_a_long_status() {
        let status = resolve(Some(model()), &"ä".repeat(1 << 20), "").unwrap_err();
        assert!(status.message().len() < 512, "{} bytes", status.message().len());
        let many = Model { versions: (0..100_000).collect(), ..model() };
        let status = resolve(Some(many), "connect_four", "100000").unwrap_err();
        assert!(status.message().contains("99999 and 99992 older versions"), "{}", status.message());
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
}
