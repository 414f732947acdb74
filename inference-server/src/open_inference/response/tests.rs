use inference::Wdl;

use super::*;

/// Two positions of three actions; the second may not play its middle one.
fn predictions() -> Predictions {
    let mut predictions = Predictions::new();
    predictions.push(&[0.5, 0.25, 0.25], Wdl { win: 0.75, draw: 0.25, loss: 0.0 });
    predictions.push(&[0.125, 0.875], Wdl { win: 0.0, draw: 0.5, loss: 0.5 });
    predictions
}

fn legal() -> Legal {
    Legal::Flags(vec![true, true, true, true, false, true])
}

const PRIORS: [f32; 6] = [0.5, 0.25, 0.25, 0.125, 0.0, 0.875];
const WDL: [f32; 6] = [0.75, 0.25, 0.0, 0.0, 0.5, 0.5];
const VALUES: [f32; 2] = [0.75, -0.5];

#[test]
fn raw_and_typed_contents_hold_the_same_numbers() {
    let raw = write(&predictions(), &legal(), &Output::ALL, Form::Raw, 3);
    let typed = write(&predictions(), &legal(), &Output::ALL, Form::Typed, 3);
    assert!(typed.raw_output_contents.is_empty());
    for (index, (name, shape, numbers)) in
        [("priors", [2, 3], &PRIORS[..]), ("wdl", [2, 3], &WDL), ("value", [2, 1], &VALUES)].into_iter().enumerate()
    {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(raw.raw_output_contents[index], bytes, "{name}");
        assert_eq!(raw.outputs[index].contents, None);
        assert_eq!(typed.outputs[index].contents.as_ref().unwrap().fp32_contents, numbers, "{name}");
        for response in [&raw, &typed] {
            let tensor = &response.outputs[index];
            assert_eq!((&*tensor.name, &*tensor.datatype, &*tensor.shape), (name, "FP32", &shape[..]));
        }
    }
}

#[test]
fn only_what_is_wanted_goes_back_in_its_order() {
    let response = write(&predictions(), &legal(), &[Output::Value, Output::Wdl], Form::Raw, 3);
    let names: Vec<&str> = response.outputs.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["value", "wdl"]);
    assert_eq!(response.raw_output_contents.len(), 2);
}

#[test]
fn where_every_action_counts_priors_are_as_predicted() {
    let mut predictions = Predictions::new();
    predictions.push(&[0.5, 0.25, 0.25], Wdl::EVEN);
    let response = write(&predictions, &Legal::All, &[Output::Priors], Form::Typed, 3);
    assert_eq!(response.outputs[0].contents.as_ref().unwrap().fp32_contents, [0.5, 0.25, 0.25]);
}
