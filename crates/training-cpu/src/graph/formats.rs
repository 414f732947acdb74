use super::operation::{Activated, Operation};
use super::{Graph, Value};
use crate::stored::Format;

impl Graph {
    /// Stores values as bfloat16 where every reader and writer supports it: inputs and outputs of products on tiles,
    /// and the values between a batch norm and the next product.
    pub(crate) fn choose_formats(&mut self) {
        let mut is_multiplied = vec![false; self.values.len()];
        let mut is_f32 = vec![false; self.values.len()];
        let of = |value: Value| value.0;
        for node in &self.nodes {
            match &node.operation {
                Operation::Convolve { convolution, x, z, n, .. } => {
                    let takes_bf16 = self.layers.convolutions[*convolution].weights.take_bf16();
                    for value in [*x, *z].map(of) {
                        is_multiplied[value] |= takes_bf16;
                        is_f32[value] |= !takes_bf16;
                    }
                    // The gradient of the norm's output is read along with z; if y has the same gradient, y decides.
                    is_multiplied[of(*n)] |= takes_bf16;
                }
                Operation::Linear { matrix, x, y, .. } => {
                    let takes_bf16 = self.layers.matrices[*matrix].weights.take_bf16();
                    is_multiplied[of(*x)] |= takes_bf16;
                    is_f32[of(*x)] |= !takes_bf16;
                    is_f32[of(*y)] = true;
                }
                Operation::Activate(Activated { kept, .. }) => {
                    let kept = [kept.squeezed, kept.hidden, kept.terms];
                    kept.into_iter().flatten().for_each(|value| is_f32[of(value)] = true);
                }
                other => other
                    .read_forward()
                    .into_iter()
                    .chain(other.outputs())
                    .chain(other.results())
                    .for_each(|value| is_f32[of(value)] = true),
            }
        }
        for (value, declared) in self.values.iter_mut().enumerate() {
            declared.format = if is_multiplied[value] && !is_f32[value] { Format::Bf16 } else { Format::F32 };
        }
    }

    /// Stores all values as float32. Returns whether any was bfloat16.
    pub(crate) fn store_in_float32(&mut self) -> bool {
        let change =
            |declared: &mut super::Declared| std::mem::replace(&mut declared.format, Format::F32) == Format::Bf16;
        self.values.iter_mut().map(change).fold(false, |any, changed| any | changed)
    }
}
