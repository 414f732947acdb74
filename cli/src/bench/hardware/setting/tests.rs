use super::*;

#[test]
fn a_setting_names_device_engine_precision_and_cores() {
    let split = |evaluators, threads| Split { evaluators, threads };
    let libtorch = |device, split| Setting::libtorch(device, Precision::Bf16, split).to_string();
    assert_eq!(libtorch(Device::Cpu, Split::SINGLE), "cpu libtorch bf16, 1 thread");
    assert_eq!(libtorch(Device::Cpu, split(1, 4)), "cpu libtorch bf16, 4 threads");
    assert_eq!(libtorch(Device::Cpu, split(4, 1)), "cpu libtorch bf16, 4 evaluators");
    assert_eq!(libtorch(Device::Cuda(1), Split::SINGLE), "cuda:1 libtorch bf16");
    assert_eq!(Setting::kernel("avx2-f32", Precision::F32, split(2, 1)).to_string(), "cpu avx2-f32, 2 evaluators");
    assert_eq!(Setting::kernel("kernel", Precision::F32, Split::SINGLE).to_string(), "cpu kernel f32, 1 thread");
}

#[test]
fn a_single_core_is_used_in_one_way() {
    assert_eq!(Split::all(1), [Split::SINGLE]);
    assert_eq!(Split::all(4).len(), 3);
}
