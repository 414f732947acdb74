//! Devices of this machine, and the choices of `auto`.

use std::time::Instant;

use inference::Precision;
use network_torch::{
    Device, DevicePreference, DeviceRules, PrecisionPreference, Purpose, choose_device, choose_precision, device_name,
    devices,
};

use crate::{Result, Settings};

/// Lists the devices. If no CUDA device is expected, because the option names the CPU, there must be a reason, and
/// `cuda` by name must be an error.
pub(super) fn load(settings: &Settings) -> Result<()> {
    // The first call of libtorch, which loads the CUDA half.
    let devices = devices();
    let names: Vec<String> = devices.working.iter().map(|&device| device_name(device)).collect();
    settings.text("devices that work", &names.join(", "));
    for missing in &devices.missing {
        settings.text("device that does not work", missing);
    }
    let named = choose_device(DevicePreference::Cuda(0), Purpose::Inference);
    let auto = choose_device(DevicePreference::Auto, Purpose::Inference)?;
    if settings.preference == DevicePreference::Cpu {
        let reason = devices.missing.iter().find(|missing| missing.starts_with("cuda"));
        settings.claim("a missing CUDA device has a reason", reason.map_or("none", String::as_str), reason.is_some());
        let error = named.map_or_else(|error| error.to_string(), |chosen| format!("{chosen} was chosen"));
        settings.claim("`cuda` by name is an error", &error, error.contains("cannot use device"));
        settings.claim("`auto` takes the CPU", &auto.to_string(), auto.device == Device::Cpu);
    } else {
        let found = named.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        settings.claim("`cuda` by name works", &found, named.is_ok());
        settings.claim("`auto` takes a CUDA device", &auto.to_string(), auto.device.is_cuda());
    }
    Ok(())
}

/// Checks the precision that `auto` chooses.
pub(super) fn precision(settings: &Settings) -> Result<()> {
    let device = settings.device()?.device;
    let start = Instant::now();
    let chosen = choose_precision(PrecisionPreference::Auto, device, &mut Instant::now)?;
    settings.value("duration of the choice", start.elapsed().as_secs_f64(), "s");
    if device == Device::Cpu {
        settings.text("`auto` on the CPU", &chosen.to_string());
    } else {
        let has_bf16 = DeviceRules::of(device).permits(Precision::Bf16, Purpose::Inference);
        let wanted = if has_bf16 { Precision::Bf16 } else { Precision::F16 };
        settings.claim(&format!("`auto` takes {wanted}"), &chosen.to_string(), chosen.precision == wanted);
    }
    Ok(())
}
