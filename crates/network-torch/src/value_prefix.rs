//! Value prefixes of EfficientZero (Ye et al. 2021, section 4.2): the sum of rewards over several steps, predicted by
//! an LSTM. See [`LatentLayers`](network::LatentLayers) for the formula.

use ::network::{MEMORY_UNITS, PREFIX_HORIZON};
use tch::{Kind, Tensor};

use crate::{Error, layers::Affine};

/// State of a memory, `[B, 64]` each.
#[derive(Debug)]
pub(crate) struct Memory {
    /// h, the input of the output layer.
    pub(crate) output: Tensor,
    /// c.
    pub(crate) cell: Tensor,
}

impl Memory {
    /// Creates an empty memory with the rows and kind of `units`.
    fn empty(units: &Tensor) -> Result<Self, Error> {
        let zeros = || units.f_detach()?.f_zeros_like();
        Ok(Self { output: zeros()?, cell: zeros()? })
    }

    /// Takes one step with the hidden units x `[B, 64]` of the reward head; the matrix is computed in `kind`, the
    /// rest in the kind of x and the memory.
    pub(crate) fn next(&self, gates: &Affine, x: &Tensor, kind: Kind) -> Result<Self, Error> {
        let units = size(MEMORY_UNITS);
        let sums = gates.linear(&Tensor::f_cat(&[x, &self.output], 1)?.f_to_kind(kind)?)?.f_to_kind(x.f_kind()?)?;
        let gate = |index: i64| sums.f_narrow(1, index * units, units);
        let kept = gate(1)?.f_sigmoid()?.f_mul(&self.cell)?;
        let cell = kept.f_add(&gate(0)?.f_sigmoid()?.f_mul(&gate(2)?.f_tanh()?)?)?;
        let output = gate(3)?.f_sigmoid()?.f_mul(&cell.f_tanh()?)?;
        Ok(Self { output, cell })
    }
}

/// Returns the outputs of a memory that is empty before the first step and after every horizon, from hidden units
/// `[K, B, 64]`: `[K · B, 64]`.
pub(crate) fn unroll(gates: &Affine, hidden: &Tensor, kind: Kind) -> Result<Tensor, Error> {
    let (steps, ..) = hidden.size3()?;
    let mut outputs: Vec<Tensor> = Vec::new();
    let mut memory = None;
    for step in 0..steps {
        let x = hidden.f_select(0, step)?;
        let before = match memory {
            Some(memory) if step % size(PREFIX_HORIZON) != 0 => memory,
            _ => Memory::empty(&x)?,
        };
        let next = before.next(gates, &x, kind)?;
        outputs.push(next.output.shallow_clone());
        memory = Some(next);
    }
    Ok(Tensor::f_cat(&outputs, 0)?)
}

/// Returns the reward sums since the memory was last empty, from rewards `[B, K]` to `[B, K]`.
pub(crate) fn sums(rewards: &Tensor) -> Result<Tensor, Error> {
    let parts = rewards.f_split(size(PREFIX_HORIZON), 1)?;
    let sums = parts.iter().map(|part| part.f_cumsum(1, None::<Kind>));
    Ok(Tensor::f_cat(&sums.collect::<Result<Vec<_>, _>>()?, 1)?)
}

fn size(n: usize) -> i64 {
    i64::try_from(n).expect("constants are small")
}

#[cfg(test)]
mod tests {
    use tch::Tensor;

    use super::sums;
    use crate::tests::networks::numbers;

    #[test]
    fn sums_begin_again_after_five_steps() {
        let rewards = Tensor::from_slice(&[1.0_f32, 0.0, 2.0, 0.0, -1.0, 8.0, 1.0]).view([1, 7]);
        assert_eq!(numbers(&sums(&rewards).unwrap()), [1.0, 1.0, 3.0, 3.0, 2.0, 8.0, 9.0]);
        let short = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0]).view([2, 2]);
        assert_eq!(numbers(&sums(&short).unwrap()), [1.0, 3.0, 3.0, 7.0]);
    }
}
