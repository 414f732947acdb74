//! Decodes requests: each is checked whole before anything is allocated for it.
//!
//! Each error names the tensor, in the words of the request: `observations.shape`, `legal[3]`.

use game::Action;
use inference::Batch;
use proto::convert::Invalid;
use proto::limits::{MESSAGE_BYTES_MAX, MESSAGE_REST_BYTES};
use proto::open_inference::v2::infer_parameter::ParameterChoice;
use proto::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use proto::open_inference::v2::{InferParameter, InferTensorContents, ModelInferRequest};

use super::datatype::{Datatype, Elements};
use super::response::Output;
use crate::engine::Model;

/// The most characters of a text of the client in a sentence for it: a status is a header.
const QUOTED_CHARS_MAX: usize = 64;

/// The tensors that a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Observations `[B, C, H, W]`, between 0 and 1.
    Observations,
    /// The legal actions, `[B, A]`. Without it, all are legal.
    Legal,
}

/// Both of them.
pub(super) const INPUTS: [Input; 2] = [Input::Observations, Input::Legal];

impl Input {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Observations => "observations",
            Self::Legal => "legal",
        }
    }

    /// The datatype that is announced.
    pub(super) const fn datatype(self) -> Datatype {
        match self {
            Self::Observations => Datatype::Fp32,
            Self::Legal => Datatype::Bool,
        }
    }

    pub(super) const fn is_optional(self) -> bool {
        matches!(self, Self::Legal)
    }

    /// Its shape without the batch dimension.
    pub(super) fn dims(self, model: &Model) -> Vec<i64> {
        match self {
            Self::Observations => [model.shape.planes, model.shape.height, model.shape.width].map(dim).to_vec(),
            Self::Legal => vec![dim(model.actions)],
        }
    }

    const fn takes(self, datatype: Datatype) -> bool {
        match self {
            Self::Observations => true,
            Self::Legal => matches!(datatype, Datatype::Bool),
        }
    }
}

/// The most positions of a request: in the widest datatypes they fit a message, and the engine takes them.
pub(super) fn positions_max(model: &Model) -> usize {
    let position = model.shape.len() * Datatype::Fp32.bytes() + model.actions * Datatype::Bool.bytes();
    model.positions_max.min((MESSAGE_BYTES_MAX - MESSAGE_REST_BYTES) / position.max(1)).max(1)
}

/// A size of a model as a dimension: networks and boards are far smaller than any integer type.
pub(super) fn dim(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// The form of the contents, in requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As bytes.
    Raw,
    /// As lists of numbers.
    Typed,
}

/// The legal actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Legal {
    /// Every one.
    All,
    /// Those that are true, `[B, A]`.
    Flags(Vec<bool>),
}

/// A decoded request.
#[derive(Debug)]
pub(super) struct Asked {
    /// The positions, at least one and at most [`positions_max`].
    pub(super) batch: Batch,
    pub(super) legal: Legal,
    /// The outputs requested, in this order.
    pub(super) outputs: Vec<Output>,
    pub(super) form: Form,
}

/// Reads the tensors of a request to `model`.
///
/// # Errors
/// The tensor and what is wrong with it.
pub(super) fn read(request: &ModelInferRequest, model: &Model) -> Result<Asked, Invalid> {
    let form = form(request)?;
    let outputs = outputs(&request.outputs)?;
    let observations = Tensor::find(request, form, Input::Observations, model)?
        .ok_or_else(|| invalid("observations", "is missing"))?;
    let positions = observations.positions;
    let positions_max = positions_max(model);
    if positions > positions_max {
        let reason = format!("has {positions} positions, the limit is {positions_max}");
        return Err(invalid("observations.shape", reason));
    }
    let legal = match Tensor::find(request, form, Input::Legal, model)? {
        None => Legal::All,
        Some(tensor) if tensor.positions != positions => {
            let reason = format!("has {} positions, observations have {positions}", tensor.positions);
            return Err(invalid("legal.shape", reason));
        }
        Some(tensor) => Legal::Flags(flags(tensor.elements()?, positions, model.actions)?),
    };
    let batch = batch(observations.elements()?, positions, &legal, model)?;
    Ok(Asked { batch, legal, outputs, form })
}

/// Returns the form of the contents, once every input has some and no input is unknown.
fn form(request: &ModelInferRequest) -> Result<Form, Invalid> {
    // First of all: further names need no check.
    if request.inputs.len() > INPUTS.len() {
        return Err(invalid("inputs", format!("has {} tensors, at most {}", request.inputs.len(), INPUTS.len())));
    }
    for (index, input) in request.inputs.iter().enumerate() {
        if INPUTS.iter().all(|known| known.name() != input.name) {
            let reason = format!("{} is not an input: these are `observations` and `legal`", quoted(&input.name));
            return Err(invalid(format!("inputs[{index}].name"), reason));
        }
        if request.inputs[..index].iter().any(|before| before.name == input.name) {
            return Err(invalid(&input.name, "comes twice"));
        }
        refuse_shared_memory(&input.name, &input.parameters)?;
    }
    let raw = request.raw_input_contents.len();
    if raw == 0 {
        return Ok(Form::Typed);
    }
    if let Some(typed) = request.inputs.iter().find(|input| input.contents.is_some()) {
        return Err(invalid(&typed.name, "has contents beside raw_input_contents"));
    }
    if raw != request.inputs.len() {
        let reason = format!("has {raw} entries for {} inputs", request.inputs.len());
        return Err(invalid("raw_input_contents", reason));
    }
    Ok(Form::Raw)
}

/// An input with a valid shape, and its contents, not checked yet.
struct Tensor<'a> {
    input: Input,
    datatype: Datatype,
    /// B, at least one.
    positions: usize,
    /// Elements of one position.
    stride: usize,
    contents: Contents<'a>,
}

enum Contents<'a> {
    Raw(&'a [u8]),
    Typed(&'a InferTensorContents),
}

impl<'a> Tensor<'a> {
    fn find(request: &'a ModelInferRequest, form: Form, input: Input, model: &Model) -> Result<Option<Self>, Invalid> {
        let Some(index) = request.inputs.iter().position(|tensor| tensor.name == input.name()) else { return Ok(None) };
        let InferInputTensor { datatype, shape, contents, .. } = &request.inputs[index];
        let name = input.name();
        let datatype = Datatype::parse(datatype).filter(|&known| input.takes(known)).ok_or_else(|| {
            let taken = [Datatype::Fp32, Datatype::Fp16, Datatype::Bf16, Datatype::Uint8, Datatype::Bool];
            let taken: Vec<&str> = taken.into_iter().filter(|&known| input.takes(known)).map(Datatype::name).collect();
            let reason = format!("is {}, expected {}", quoted(datatype), taken.join(", "));
            invalid(format!("{name}.datatype"), reason)
        })?;
        let dims = input.dims(model);
        let positions = shape.split_first().filter(|(_, rest)| *rest == dims).map(|(&positions, _)| positions);
        let positions = positions.ok_or_else(|| {
            let reason = format!("is {}, expected {}", written(shape), written(&[&[-1], dims.as_slice()].concat()));
            invalid(format!("{name}.shape"), reason)
        })?;
        let positions = usize::try_from(positions).ok().filter(|&positions| positions > 0).ok_or_else(|| {
            invalid(format!("{name}.shape"), format!("begins with {positions}, a batch has at least one position"))
        })?;
        let contents = match form {
            Form::Raw => request.raw_input_contents.get(index).map(|bytes| Contents::Raw(bytes)),
            Form::Typed => contents.as_ref().map(Contents::Typed),
        };
        let contents = contents.ok_or_else(|| invalid(name, "has neither contents nor raw_input_contents"))?;
        let stride = match input {
            Input::Observations => model.shape.len(),
            Input::Legal => model.actions,
        };
        Ok(Some(Self { input, datatype, positions, stride, contents }))
    }

    /// Returns its elements, as many as its shape requires. Its positions are no more than a model takes: nothing
    /// overflows.
    fn elements(&self) -> Result<Elements<'a>, Invalid> {
        let (name, expected) = (self.input.name(), self.positions * self.stride);
        match self.contents {
            Contents::Raw(bytes) => {
                let expected = expected * self.datatype.bytes();
                if bytes.len() != expected {
                    let reason =
                        format!("has {} bytes of {}, its shape takes {expected}", bytes.len(), self.datatype.name());
                    return Err(invalid(format!("{name}.raw_input_contents"), reason));
                }
                Ok(Elements::Raw(self.datatype, bytes))
            }
            Contents::Typed(contents) => {
                let (elements, list, got) = list(self.datatype, contents).ok_or_else(|| {
                    invalid(
                        format!("{name}.contents"),
                        format!("{} comes in raw_input_contents only", self.datatype.name()),
                    )
                })?;
                if got != held(contents) {
                    let reason = format!("holds other lists than {list}, which is that of {}", self.datatype.name());
                    return Err(invalid(format!("{name}.contents"), reason));
                }
                if got != expected {
                    let reason = format!("has {got} elements, its shape takes {expected}");
                    return Err(invalid(format!("{name}.contents.{list}"), reason));
                }
                Ok(elements)
            }
        }
    }
}

/// The list of typed contents that is a datatype's, what it is called, and how much is in it.
fn list(datatype: Datatype, contents: &InferTensorContents) -> Option<(Elements<'_>, &'static str, usize)> {
    let InferTensorContents { fp32_contents: floats, uint_contents: numbers, bool_contents: flags, .. } = contents;
    match datatype {
        Datatype::Fp32 => Some((Elements::Floats(floats), "fp32_contents", floats.len())),
        Datatype::Uint8 => Some((Elements::Unsigned(numbers), "uint_contents", numbers.len())),
        Datatype::Bool => Some((Elements::Flags(flags), "bool_contents", flags.len())),
        Datatype::Fp16 | Datatype::Bf16 => None,
    }
}

/// Returns the number of elements of all lists.
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

/// Returns the legal actions, `[B, A]`: at least one of each position.
fn flags(elements: Elements<'_>, positions: usize, actions: usize) -> Result<Vec<bool>, Invalid> {
    let flags = match elements {
        Elements::Flags(flags) => flags.to_vec(),
        Elements::Raw(_, bytes) => {
            if let Some(index) = bytes.iter().position(|&byte| byte > 1) {
                let reason = format!("is {}, a BOOL is 0 or 1", bytes[index]);
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

fn batch(elements: Elements<'_>, positions: usize, legal: &Legal, model: &Model) -> Result<Batch, Invalid> {
    let stride = model.shape.len();
    let mut batch = Batch::new(model.shape);
    // Actions are u16 everywhere: a model has no more of them.
    let all: Vec<Action> = (0..=u16::MAX).take(model.actions).map(Action).collect();
    let mut some = Vec::with_capacity(model.actions);
    for row in 0..positions {
        let actions = match legal {
            Legal::All => &all,
            Legal::Flags(flags) => {
                some.clear();
                let flags = &flags[row * model.actions..][..model.actions];
                some.extend(all.iter().zip(flags).filter(|(_, flag)| **flag).map(|(action, _)| *action));
                &some
            }
        };
        batch.push(actions, |planes| elements.read(row * stride..(row + 1) * stride, planes));
        // One observation out of bounds could make every answer of the batch it is computed in worthless.
        if let Some(index) = batch.observation(row).iter().position(|value| !(0.0..=1.0).contains(value)) {
            let value = batch.observation(row)[index];
            let reason = if value.is_finite() { "is not between 0 and 1" } else { "is not finite" };
            return Err(invalid(format!("observations[{}]", row * stride + index), format!("{value} {reason}")));
        }
    }
    Ok(batch)
}

/// The outputs that are wanted: all, where none is named.
fn outputs(requested: &[InferRequestedOutputTensor]) -> Result<Vec<Output>, Invalid> {
    if requested.len() > Output::ALL.len() {
        return Err(invalid("outputs", format!("has {} tensors, at most {}", requested.len(), Output::ALL.len())));
    }
    if requested.is_empty() {
        return Ok(Output::ALL.to_vec());
    }
    let mut outputs = Vec::with_capacity(Output::ALL.len());
    for (index, InferRequestedOutputTensor { name, parameters }) in requested.iter().enumerate() {
        let output = Output::ALL.into_iter().find(|output| output.name() == name).ok_or_else(|| {
            let known = Output::ALL.map(|output| format!("`{}`", output.name())).join(", ");
            invalid(format!("outputs[{index}].name"), format!("{} is not an output: these are {known}", quoted(name)))
        })?;
        refuse_shared_memory(name, parameters)?;
        if parameters.contains_key("classification") {
            return Err(invalid(name, "cannot come as classes: there is no such extension here"));
        }
        if outputs.contains(&output) {
            return Err(invalid(name, "is requested twice"));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

type Parameters = std::collections::HashMap<String, InferParameter>;

/// A client that shares memory sends nothing and reads nothing: it would wait for what never comes.
fn refuse_shared_memory(tensor: &str, parameters: &Parameters) -> Result<(), Invalid> {
    if parameters.contains_key("shared_memory_region") {
        return Err(invalid(tensor, "is in shared memory: there is no such extension here"));
    }
    Ok(())
}

/// Returns the timeout of the request in microseconds, if it has one; 0 is no bound.
///
/// # Errors
/// The parameter is no such number.
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

/// A text of the client in backquotes, cut to what fits a sentence.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// A shape in brackets; of a long one, its beginning.
fn written(shape: &[i64]) -> String {
    const DIMS_MAX: usize = 8;
    let dims: Vec<String> = shape.iter().take(DIMS_MAX).map(i64::to_string).collect();
    let more = if shape.len() > DIMS_MAX { ", …" } else { "" };
    format!("[{}{more}]", dims.join(", "))
}

fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Invalid {
    Invalid { field: field.into(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
