use super::*;
use crate::testing::numbers;

#[test]
fn what_is_written_is_what_the_tensor_holds() {
    let mut staging = Staging::new(Device::Cpu);
    staging.numbers(3).unwrap().copy_from_slice(&[1.0, 2.0, 3.0]);
    assert_eq!(numbers(&staging.tensor(3).unwrap()), [1.0, 2.0, 3.0]);
    let _ = staging.tensor(2).unwrap().f_add_scalar_(1.0).unwrap();
    assert_eq!(staging.numbers(3).unwrap(), [2.0, 3.0, 3.0]);
}

#[test]
fn memory_is_allocated_once_for_the_largest_batch() {
    let mut staging = Staging::new(Device::Cpu);
    let large = staging.numbers(1000).unwrap().as_ptr();
    assert_eq!(staging.numbers(7).unwrap().as_ptr(), large);
    assert_eq!(staging.numbers(1024).unwrap().as_ptr(), large);
}
