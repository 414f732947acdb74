/// Reasons why a network could not be built, read, trained or evaluated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A libtorch operation failed, for example because the device does not support it.
    #[error("libtorch: {0}")]
    Libtorch(String),
    /// The device or the host has too little memory for an operation. Smaller batches may fit.
    #[error("libtorch: {message}")]
    OutOfMemory {
        /// First line of the allocator's message, usually with the requested bytes.
        message: String,
    },
    /// A configured device that cannot be used.
    #[error("cannot use device {device}: {reason}")]
    Device {
        /// Name in a configuration.
        device: String,
        /// Cause of the failure.
        reason: String,
    },
    /// A function of CUDA is missing or failed.
    #[error("{call}: {reason}")]
    Cuda {
        /// Name of the function.
        call: &'static str,
        /// Cause of the failure.
        reason: String,
    },
    /// libtorch does not recompute activations of learned models.
    #[error(
        "libtorch recomputes blocks of alphazero networks only; set learner.recompute to none, or train on a CPU with \
         learner.kernel = \"auto\""
    )]
    Recompute,
    /// A network, batch, setting or checkpoint that every backend rejects, or a step that is not finite.
    #[error(transparent)]
    Training(#[from] training::Error),
}

impl Error {
    /// Classifies a message of libtorch.
    pub(crate) fn of_message(message: String) -> Self {
        if OUT_OF_MEMORY.iter().any(|text| message.contains(text)) {
            Self::OutOfMemory { message }
        } else {
            Self::Libtorch(message)
        }
    }

    /// Returns true if the device has failed for this process. CUDA reports a fault of a kernel at a later call, and
    /// then refuses all further work of the process.
    fn is_device_lost(&self) -> bool {
        match self {
            Self::Cuda { .. } => true,
            Self::Libtorch(message) => {
                let has = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
                has(&DEVICE_LOST) && !has(&REFUSED_CALL)
            }
            _ => false,
        }
    }
}

impl From<Error> for inference::Error {
    fn from(error: Error) -> Self {
        match error.is_device_lost() {
            true => Self::Lost { device: "cuda".to_owned(), reason: error.to_string() },
            false => Self::Backend(error.to_string()),
        }
    }
}

impl From<Error> for training::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Training(error) => error,
            error if error.is_device_lost() => Self::DeviceLost(Box::new(error)),
            error => Self::Backend(Box::new(error)),
        }
    }
}

impl From<network::Error> for Error {
    fn from(error: network::Error) -> Self {
        Self::Training(error.into())
    }
}

impl From<tch::TchError> for Error {
    /// Keeps the first line: the rest is a C++ stack trace.
    fn from(error: tch::TchError) -> Self {
        Self::of_message(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}

/// Common parts of out-of-memory messages from libtorch's allocators and from the CUDA libraries below.
const OUT_OF_MEMORY: [&str; 9] = [
    "CUDA out of memory",
    // The driver's own message, for pinned memory, contexts and kernels.
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    // Without the memory for a handle.
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "MPS backend out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
];

/// Substrings of error messages after a fault on a CUDA device.
const DEVICE_LOST: [&str; 4] =
    ["CUDA error", "CUDA driver error", "CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED"];

/// Substrings of errors of a single call, after which the device continues to work.
const REFUSED_CALL: [&str; 2] = ["CUDA error: invalid configuration argument", "CUDA error: invalid argument"];

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, TchError, Tensor};

    use super::Error;

    fn converted(text: &str) -> Error {
        Error::from(TchError::Torch(text.to_owned()))
    }

    #[test]
    fn messages_of_the_allocators_are_errors_of_memory() {
        for text in [
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 8.06 GiB is \
             free. Including non-PyTorch memory, this process has 71.04 GiB memory in use.",
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
            "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "MPS backend out of memory (MPS allocated: 17.82 GB, other allocations: 384.00 KB, max allowed: 18.13 GB). Tried \
             to allocate 512.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit.",
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate \
             4398046511104 bytes. Error code 12 (Cannot allocate memory)",
            "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to allocate 400 bytes.",
        ] {
            let error = converted(text);
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn other_messages_are_not() {
        for text in
            ["CUDA error: an illegal memory access was encountered", "mat1 and mat2 shapes cannot be multiplied"]
        {
            assert!(matches!(converted(text), Error::Libtorch(_)), "{text}");
        }
    }

    #[test]
    fn a_fault_of_the_device_is_a_lost_device_for_training_and_evaluation_and_nothing_else_is() {
        let cuda = || Error::Cuda { call: "cudaEventSynchronize", reason: "unspecified launch failure".to_owned() };
        let faults = [
            "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later",
            "CUDA driver error: an illegal memory access was encountered",
            "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
            "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
            "aten::_fused_adamw_ failed: CUDA error: misaligned address, 1 of 2 MiB of the device are free",
        ];
        for fault in faults.into_iter().map(|text| move || converted(text)) {
            assert!(matches!(training::Error::from(fault()), training::Error::DeviceLost(_)), "{}", fault());
            assert!(matches!(inference::Error::from(fault()), inference::Error::Lost { .. }), "{}", fault());
        }
        assert!(matches!(training::Error::from(cuda()), training::Error::DeviceLost(_)));
        for other in [
            "mat1 and mat2 shapes cannot be multiplied",
            "CUDA out of memory. Tried to allocate 20.00 GiB",
            "CUDA error: invalid configuration argument",
            "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        ] {
            assert!(matches!(training::Error::from(converted(other)), training::Error::Backend(_)), "{other}");
            assert!(matches!(inference::Error::from(converted(other)), inference::Error::Backend(_)), "{other}");
        }
    }

    #[test]
    fn an_allocation_that_no_machine_can_satisfy_is_an_error_of_memory() {
        let error = Tensor::f_empty([1_i64 << 52], (Kind::Float, Device::Cpu)).map_err(Error::from).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    }
}
