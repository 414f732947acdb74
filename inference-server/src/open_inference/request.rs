//! Decodes requests, and checks each completely before allocating anything for it.
//!
//! Errors name the tensor as in the request: `observations.shape`, `legal[3]`.

use game::Action;
use inference::Batch;
use proto::convert::{Invalid, invalid};
use proto::limits::MESSAGE_REST_BYTES;
use proto::open_inference::v2::infer_parameter::ParameterChoice;
use proto::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use proto::open_inference::v2::{DataType, InferParameter, InferTensorContents, ModelInferRequest};
use transport::limits::MESSAGE_BYTES_MAX;

use super::tensors::{Elements, Input, Output, bytes_of, name_of};
use crate::engine::Model;

/// Maximum number of characters quoted from a client's text in a reply, since a status is a header.
const QUOTED_CHARS_MAX: usize = 64;

/// Returns the maximum number of positions in a request: a message can hold them in the widest datatypes, and the
/// engine accepts them.
pub(super) fn positions_max(model: &Model) -> usize {
    let position = model.shape.len() * size_of::<f32>() + model.actions;
    model.positions_max.min((MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES) / position.max(1)).max(1)
}

/// The encoding of tensor contents, in requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Contents as bytes.
    Raw,
    /// Contents as lists of numbers.
    Typed,
}

/// A decoded request.
#[derive(Debug)]
pub(super) struct InferInputs {
    /// Positions, at least one and at most [`positions_max`].
    pub(super) batch: Batch,
    /// Requested outputs, in this order.
    pub(super) outputs: Vec<Output>,
    pub(super) form: Form,
}

/// Reads the tensors of a request for `model`.
///
/// # Errors
/// [`Invalid`] names the tensor and the problem.
pub(super) fn read(request: &ModelInferRequest, model: &Model) -> Result<InferInputs, Invalid> {
    // These texts are kept until the response.
    if request.id.len().max(request.model_version.len()) > MESSAGE_REST_BYTES {
        return Err(invalid("id", format!("or model_version has more than {MESSAGE_REST_BYTES} bytes")));
    }
    let form = form(request)?;
    let outputs = outputs(&request.outputs)?;
    let positions_max = positions_max(model);
    let (positions, observations) = tensor(request, form, Input::Observations, model, |positions| {
        (positions > positions_max).then(|| format!("the limit is {positions_max}"))
    })?
    .ok_or_else(|| invalid("observations", "is missing"))?;
    let legal = tensor(request, form, Input::Legal, model, |legal| {
        (legal != positions).then(|| format!("observations have {positions}"))
    })?;
    let flags = legal.map(|(_, elements)| flags(elements, positions, model.actions)).transpose()?;
    let batch = batch(observations, positions, flags.as_deref(), model)?;
    Ok(InferInputs { batch, outputs, form })
}

/// Returns the encoding of the contents. Checks that every input has contents and that no input is unknown.
fn form(request: &ModelInferRequest) -> Result<Form, Invalid> {
    // The number of inputs is checked first, so that surplus names need no check.
    let (inputs, inputs_max) = (request.inputs.len(), Input::ALL.len());
    if inputs > inputs_max {
        return Err(invalid("inputs", format!("has {inputs} tensors, the limit is {inputs_max}")));
    }
    for (index, input) in request.inputs.iter().enumerate() {
        if Input::ALL.iter().all(|known| known.name() != input.name) {
            let reason = format!("{} is not an input; inputs are `observations` and `legal`", quoted(&input.name));
            return Err(invalid(format!("inputs[{index}].name"), reason));
        }
        if request.inputs[..index].iter().any(|before| before.name == input.name) {
            return Err(invalid(&input.name, "is given twice"));
        }
        refuse_shared_memory(&input.name, &input.parameters)?;
    }
    let raw = request.raw_input_contents.len();
    if raw == 0 {
        return Ok(Form::Typed);
    }
    if let Some(typed) = request.inputs.iter().find(|input| input.contents.is_some()) {
        return Err(invalid(&typed.name, "has contents in addition to raw_input_contents"));
    }
    if raw != inputs {
        return Err(invalid("raw_input_contents", format!("has {raw} entries for {inputs} inputs")));
    }
    Ok(Form::Raw)
}

/// Returns the number of positions in an input, at least one, and the elements, in the number that the shape
/// requires; `None` if the request lacks the input. `too_many` describes the problem with a number of positions, if
/// any. An accepted number is within the model's limit, so no product overflows.
fn tensor<'a>(
    request: &'a ModelInferRequest,
    form: Form,
    input: Input,
    model: &Model,
    too_many: impl FnOnce(usize) -> Option<String>,
) -> Result<Option<(usize, Elements<'a>)>, Invalid> {
    let name = input.name();
    let Some(index) = request.inputs.iter().position(|tensor| tensor.name == name) else { return Ok(None) };
    let InferInputTensor { datatype, shape, contents, .. } = &request.inputs[index];
    let known = input.datatypes().iter().copied().find(|&known| name_of(known) == datatype);
    let datatype = known.ok_or_else(|| {
        let taken: Vec<&str> = input.datatypes().iter().map(|&known| name_of(known)).collect();
        invalid(format!("{name}.datatype"), format!("is {}, expected {}", quoted(datatype), taken.join(", ")))
    })?;
    let dims = input.dims(model);
    let wrong_shape = |reason| invalid(format!("{name}.shape"), reason);
    let positions = shape.split_first().filter(|(_, rest)| *rest == dims).map(|(&positions, _)| positions);
    let positions = positions.ok_or_else(|| {
        let expected = written(&[&[-1], dims.as_slice()].concat());
        wrong_shape(format!("is {}, expected {expected}", written(shape)))
    })?;
    let positions = usize::try_from(positions)
        .ok()
        .filter(|&positions| positions > 0)
        .ok_or_else(|| wrong_shape(format!("starts with {positions}, expected at least one position")))?;
    if let Some(reason) = too_many(positions) {
        return Err(wrong_shape(format!("has {positions} positions, {reason}")));
    }
    let expected = positions
        * match input {
            Input::Observations => model.shape.len(),
            Input::Legal => model.actions,
        };
    let neither = || invalid(name, "has neither contents nor raw_input_contents");
    let elements = match form {
        Form::Raw => {
            let bytes = request.raw_input_contents.get(index).ok_or_else(neither)?;
            let expected = expected * bytes_of(datatype);
            if bytes.len() != expected {
                let reason = format!("has {} bytes of {}, expected {expected}", bytes.len(), name_of(datatype));
                return Err(invalid(format!("{name}.raw_input_contents"), reason));
            }
            Elements::Raw(datatype, bytes)
        }
        Form::Typed => typed(name, datatype, contents.as_ref().ok_or_else(neither)?, expected)?,
    };
    Ok(Some((positions, elements)))
}

/// Returns the elements of typed contents: exactly `expected` in the list of the datatype, and none in any other list.
fn typed<'a>(
    name: &str,
    datatype: DataType,
    contents: &'a InferTensorContents,
    expected: usize,
) -> Result<Elements<'a>, Invalid> {
    let wrong = |reason| invalid(format!("{name}.contents"), reason);
    let InferTensorContents { fp32_contents: floats, uint_contents: numbers, bool_contents: flags, .. } = contents;
    let (elements, list, got) = match datatype {
        DataType::TypeFp32 => (Elements::Floats(floats), "fp32_contents", floats.len()),
        DataType::TypeUint8 => (Elements::Unsigned(numbers), "uint_contents", numbers.len()),
        DataType::TypeBool => (Elements::Flags(flags), "bool_contents", flags.len()),
        _ => return Err(wrong(format!("{} is accepted in raw_input_contents only", name_of(datatype)))),
    };
    if got != held(contents) {
        return Err(wrong(format!("has lists other than {list}, the list for {}", name_of(datatype))));
    }
    if got != expected {
        let reason = format!("has {got} elements, expected {expected}");
        return Err(invalid(format!("{name}.contents.{list}"), reason));
    }
    Ok(elements)
}

/// Returns the total number of elements in all lists.
fn held(contents: &InferTensorContents) -> usize {
    let InferTensorContents {
        bool_contents,
        int_contents,
        int64_contents,
        uint_contents,
        uint64_contents,
        fp32_contents,
        fp64_contents,
        bytes_contents,
    } = contents;
    let integers = int_contents.len() + int64_contents.len() + uint_contents.len() + uint64_contents.len();
    bool_contents.len() + integers + fp32_contents.len() + fp64_contents.len() + bytes_contents.len()
}

/// Returns the flags of the legal actions, `[B, A]`, with at least one set per position.
fn flags(elements: Elements<'_>, positions: usize, actions: usize) -> Result<Vec<bool>, Invalid> {
    let flags = match elements {
        Elements::Flags(flags) => flags.to_vec(),
        Elements::Raw(_, bytes) => {
            if let Some(index) = bytes.iter().position(|&byte| byte > 1) {
                let reason = format!("is {}, expected 0 or 1 for a BOOL", bytes[index]);
                return Err(invalid(format!("legal[{index}]"), reason));
            }
            bytes.iter().map(|&byte| byte == 1).collect()
        }
        Elements::Floats(_) | Elements::Unsigned(_) => return Err(invalid("legal.datatype", "is not BOOL")),
    };
    let stuck = (0..positions).find(|row| !flags[row * actions..][..actions].contains(&true));
    match stuck {
        Some(row) => Err(invalid("legal", format!("position {row} has no legal action"))),
        None => Ok(flags),
    }
}

/// Returns the batch of positions; without `flags` every action is legal.
fn batch(elements: Elements<'_>, positions: usize, flags: Option<&[bool]>, model: &Model) -> Result<Batch, Invalid> {
    let stride = model.shape.len();
    let mut batch = Batch::new(model.shape);
    // Actions are u16 everywhere, so no model has more.
    let all: Vec<Action> = (0..=u16::MAX).take(model.actions).map(Action).collect();
    let mut some = Vec::with_capacity(model.actions);
    for row in 0..positions {
        let actions = match flags {
            None => &all,
            Some(flags) => {
                some.clear();
                let flags = &flags[row * model.actions..][..model.actions];
                some.extend(all.iter().zip(flags).filter(|(_, flag)| **flag).map(|(action, _)| *action));
                &some
            }
        };
        batch.push(actions, |planes| elements.read(row * stride..(row + 1) * stride, planes));
        // One observation out of bounds could make every result in the batch useless.
        if let Some(index) = batch.observation(row).iter().position(|value| !(0.0..=1.0).contains(value)) {
            let value = batch.observation(row)[index];
            let reason = if value.is_finite() { "is not between 0 and 1" } else { "is not finite" };
            return Err(invalid(format!("observations[{}]", row * stride + index), format!("{value} {reason}")));
        }
    }
    Ok(batch)
}

/// Returns the requested outputs; all outputs if none is named.
fn outputs(requested: &[InferRequestedOutputTensor]) -> Result<Vec<Output>, Invalid> {
    if requested.len() > Output::ALL.len() {
        return Err(invalid("outputs", format!("has {} tensors, the limit is {}", requested.len(), Output::ALL.len())));
    }
    if requested.is_empty() {
        return Ok(Output::ALL.to_vec());
    }
    let mut outputs = Vec::with_capacity(Output::ALL.len());
    for (index, InferRequestedOutputTensor { name, parameters }) in requested.iter().enumerate() {
        let output = Output::ALL.into_iter().find(|output| output.name() == name).ok_or_else(|| {
            let known = Output::ALL.map(|output| format!("`{}`", output.name())).join(", ");
            invalid(format!("outputs[{index}].name"), format!("{} is not an output; outputs are {known}", quoted(name)))
        })?;
        refuse_shared_memory(name, parameters)?;
        if parameters.contains_key("classification") {
            return Err(invalid(name, "cannot be returned as classes: the classification extension is not supported"));
        }
        if outputs.contains(&output) {
            return Err(invalid(name, "is requested twice"));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

type Parameters = std::collections::HashMap<String, InferParameter>;

/// Rejects shared memory: a client with shared memory sends no contents and would wait for output that is never
/// written.
fn refuse_shared_memory(tensor: &str, parameters: &Parameters) -> Result<(), Invalid> {
    if parameters.contains_key("shared_memory_region") {
        return Err(invalid(tensor, "is in shared memory: the shared memory extension is not supported"));
    }
    Ok(())
}

/// Returns the request timeout in microseconds, if there is one; 0 means no timeout.
///
/// # Errors
/// The parameter is not a valid number.
pub(super) fn timeout_us(parameters: &Parameters) -> Result<Option<u64>, Invalid> {
    let Some(InferParameter { parameter_choice }) = parameters.get("timeout") else { return Ok(None) };
    let value = match parameter_choice {
        Some(ParameterChoice::Int64Param(value)) => u64::try_from(*value).ok(),
        Some(ParameterChoice::Uint64Param(value)) => Some(*value),
        _ => None,
    };
    let value = value.ok_or_else(|| invalid("parameters.timeout", "is not a number of microseconds"))?;
    Ok(Some(value).filter(|&value| value > 0))
}

/// Quotes a client's text in backquotes, truncated to [`QUOTED_CHARS_MAX`].
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Formats a shape in brackets; truncates a long shape.
fn written(shape: &[i64]) -> String {
    const DIMS_MAX: usize = 8;
    let dims: Vec<String> = shape.iter().take(DIMS_MAX).map(i64::to_string).collect();
    let more = if shape.len() > DIMS_MAX { ", …" } else { "" };
    format!("[{}{more}]", dims.join(", "))
}

#[cfg(test)]
mod tests;
