//! Checks, before the first training step, that training fits into the machine's memory.

use run_file::learner::LearnerSection;
use training::Memory;

/// Checks that training steps fit into `machine` bytes of memory. Without a known size, everything fits.
///
/// # Errors
/// Training steps need more memory; the error names settings that reduce the memory.
pub(crate) fn check(memory: &Memory, machine: Option<u64>, learner: &LearnerSection) -> anyhow::Result<()> {
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let needed = memory.total() as u64;
    let Some(machine) = machine.filter(|&machine| needed > machine) else { return Ok(()) };
    let &LearnerSection { batch_size, micro_batch, recompute, moments, .. } = learner;
    anyhow::bail!(
        "learner.batch_size: a training step of {batch_size} positions needs {:.1} GiB ({memory}), and this machine \
         has {:.1} GiB; lower learner.batch_size or learner.micro_batch (now {micro_batch}), set learner.recompute to \
         blocks (now {}), or set learner.moments to bf16 or int8 (now {})",
        gibibytes(needed),
        gibibytes(machine),
        format!("{recompute:?}").to_lowercase(),
        format!("{moments:?}").to_lowercase(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_needs_more_than_the_machine_has_is_refused_with_the_settings_that_lower_it() {
        let memory = Memory { activations: 3 << 30, ..Memory::default() };
        let learner = LearnerSection::default();
        check(&memory, Some(3 << 30), &learner).unwrap();
        check(&memory, None, &learner).unwrap();
        let error = check(&memory, Some(2 << 30), &learner).unwrap_err().to_string();
        let named = ["learner.batch_size", "learner.micro_batch", "learner.recompute", "learner.moments", "3.0 GiB"];
        assert!(named.iter().all(|named| error.contains(named)), "{error}");
    }
}
