use tch::Device;

use super::{DevicePreference, choose_device, device_name, devices, probe};

#[test]
fn preferences_are_written_as_they_are_read() {
    for text in ["auto", "cpu", "cuda", "cuda:3", "mps"] {
        assert_eq!(text.parse::<DevicePreference>().unwrap().to_string(), text);
    }
    for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999"] {
        let error = text.parse::<DevicePreference>().unwrap_err();
        assert_eq!(error, format!("`{text}` is not a device: expected auto, cpu, cuda, cuda:N or mps"));
    }
}

#[test]
fn the_cpu_is_always_there() {
    let chosen = choose_device(DevicePreference::Cpu);
    assert_eq!(chosen.device, Device::Cpu);
    assert_eq!(chosen.to_string(), "cpu (the CPU was asked for)");
    assert_eq!(probe(Device::Cpu), Ok(Device::Cpu));
}

#[test]
fn a_device_that_is_not_there_is_replaced_by_the_cpu_with_the_reason() {
    // No machine has a thousand.
    let chosen = choose_device(DevicePreference::Cuda(1000));
    assert_eq!(chosen.device, Device::Cpu);
    assert!(chosen.reason.starts_with("CUDA device 1000 was asked for: "), "{}", chosen.reason);
    assert!(chosen.reason.ends_with("; using the CPU"), "{}", chosen.reason);
}

#[test]
fn automatic_choice_always_finds_a_device_that_works() {
    let chosen = choose_device(DevicePreference::Auto);
    assert_eq!(probe(chosen.device), Ok(chosen.device), "{}", chosen.reason);
}

#[test]
fn every_device_works_or_says_why_not() {
    let devices = devices();
    assert_eq!(devices.working[0], Device::Cpu);
    for accelerator in ["cuda", "mps"] {
        let works = devices.working.iter().any(|&device| device_name(device) == accelerator);
        let reason = devices.missing.iter().any(|why| why.starts_with(&format!("{accelerator}: ")));
        assert!(works != reason, "{devices:?}");
    }
    assert_eq!(devices.working[1..].first().copied(), automatic());
}

/// The accelerator that would be chosen, if there is one.
fn automatic() -> Option<Device> {
    Some(choose_device(DevicePreference::Auto).device).filter(|&device| device != Device::Cpu)
}
