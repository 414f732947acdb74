//! Records format and number type of operation tensors, for tests of the inputs that a device gets.

use std::cell::RefCell;

use tch::{Kind, Tensor};

/// Operations with recorded formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Convolution,
    BatchNorm,
    Matrix,
}

/// A computed operation: input, weight or scale, and output.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) operation: Operation,
    pub(crate) tensors: [Tensor; 3],
}

thread_local! {
    static RECORD: RefCell<Option<Vec<Recorded>>> = const { RefCell::new(None) };
}

/// Adds an operation to the record of [`recorded`], if a recording is active.
pub(crate) fn record(operation: Operation, tensors: [&Tensor; 3]) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.push(Recorded { operation, tensors: tensors.map(Tensor::shallow_clone) });
        }
    });
}

/// Returns the result of `work`, with the operations computed on this thread.
pub(crate) fn recorded<T>(work: impl FnOnce() -> T) -> (T, Vec<Recorded>) {
    RECORD.set(Some(Vec::new()));
    let result = work();
    (result, RECORD.take().unwrap())
}

impl Recorded {
    pub(crate) fn kinds(&self) -> [Kind; 3] {
        std::array::from_fn(|index| self.tensors[index].kind())
    }

    /// Iterates over the tensors with four dimensions.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter().filter(|tensor| tensor.dim() == 4)
    }
}

/// Returns whether libtorch takes a tensor `[B, C, H, W]` for channels last when it chooses a result format: the
/// strides do not fall from H to W to C, and dimensions of size 1 count (`is_channels_last_strides_2d`).
pub(crate) fn is_channels_last(tensor: &Tensor) -> bool {
    let (size, stride) = (tensor.size(), tensor.stride());
    let mut least = 0;
    if stride[1] == 0 {
        return false;
    }
    for dimension in [1, 3, 2, 0] {
        if stride[dimension] < least || (dimension == 0 && least == stride[1]) {
            return false;
        }
        least = stride[dimension] * size[dimension].max(1);
    }
    true
}
