/// Returns the device in the name of an evaluator: `cuda:1` from `libtorch cuda:1 bf16`, `cpu` from `cpu avx512-f32`.
/// libtorch reports the device when the weights are built. A name with several devices gives the last device, which
/// evaluates the large batches. Returns `None` for an evaluator on another machine.
#[must_use]
pub fn device_of(evaluator: &str) -> Option<&str> {
    evaluator.split(", ").filter_map(of_part).last()
}

fn of_part(part: &str) -> Option<&str> {
    let mut words = part.split_whitespace();
    match words.next()? {
        "cpu" => Some("cpu"),
        "libtorch" => words.find(|word| *word != "on"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::device_of;

    #[test]
    fn the_device_of_an_evaluator_is_in_its_name() {
        for (name, device) in [
            ("cpu avx512-f32", Some("cpu")),
            ("libtorch cuda:1 bf16, 2 in flight", Some("cuda:1")),
            ("libtorch on mps (MPS works), f32 (configured)", Some("mps")),
            ("cpu amx-bf16, libtorch cuda bf16, 3 in flight", Some("cuda")),
            ("inference server at http://10.0.0.1:7003, with fallback cpu avx2-f32", None),
            ("simulated", None),
        ] {
            assert_eq!(device_of(name), device, "{name}");
        }
    }
}
