//! Chooses the communication library for a group.

use std::collections::BTreeMap;

use proto::learners::Gpu;

/// A communication library for sums over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// Gloo: sums in host memory, for every group.
    Gloo,
    /// NCCL: sums in the memory of NVIDIA GPUs, with one GPU per member.
    Nccl,
}

/// Chooses the library for members given as pairs of index and GPU; the GPU is `None` for a member without NCCL. Also
/// returns the reason if the choice is not NCCL.
pub(crate) fn choose(members: impl Iterator<Item = (usize, Option<Gpu>)>) -> (Library, Option<String>) {
    let mut seen = BTreeMap::new();
    for (index, gpu) in members {
        let Some(gpu) = gpu else {
            return (Library::Gloo, Some(format!("learner {index} has no GPU that NCCL can use")));
        };
        if let Some(other) = seen.insert(gpu, index) {
            let reason = format!("learners {other} and {index} share a GPU, and NCCL needs a separate GPU for each");
            return (Library::Gloo, Some(reason));
        }
    }
    (Library::Nccl, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_sums_where_every_member_has_a_gpu_of_its_own_and_else_gloo_with_the_reason() {
        let gpu = |number| Some([number; 16]);
        let of = |gpus: &[Option<Gpu>]| choose(gpus.iter().copied().enumerate());
        assert_eq!(of(&[gpu(1)]), (Library::Nccl, None));
        assert_eq!(of(&[gpu(1), gpu(2), gpu(3)]), (Library::Nccl, None));
        for (gpus, expected) in
            [(&[gpu(1), None][..], "learner 1 has no GPU"), (&[gpu(1), gpu(2), gpu(1)], "learners 0 and 2 share a GPU")]
        {
            let (library, reason) = of(gpus);
            assert!(library == Library::Gloo && reason.as_ref().unwrap().contains(expected), "{reason:?}");
        }
    }
}
