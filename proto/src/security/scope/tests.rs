use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::*;

/// The paths of all methods of our services.
fn methods() -> Vec<String> {
    let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap().file;
    let in_file = |file: prost_types::FileDescriptorProto| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let service_name = format!("{package}.{}", service.name());
            service.method.into_iter().map(move |method| format!("/{service_name}/{}", method.name()))
        })
    };
    files.into_iter().flat_map(in_file).collect()
}

#[test]
fn every_method_of_our_services_has_its_scope() {
    let methods = methods();
    assert!(methods.len() >= 12, "{methods:?}");
    for method in methods {
        assert!(Need::listed(&method).is_some_and(|need| need != Need::Nothing), "{method} has no scope");
    }
}

#[test]
fn a_method_that_is_not_listed_needs_admin() {
    for path in ["/zerofleet.replay.v1.Replay/Drop", "/zerofleet.new.v1.New/Ask", "/", "", "nonsense", "*"] {
        assert_eq!(Need::of(path), Need::OneOf(&[Scope::Admin]), "{path}");
    }
}

#[test]
fn only_health_is_open_to_who_has_no_token() {
    assert_eq!(Need::of("/grpc.health.v1.Health/Check"), Need::Nothing);
    assert_eq!(Need::of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Need::AnyToken);
}

#[test]
fn scopes_are_read_by_name_and_a_wrong_one_is_named() {
    let scopes: Scopes = "train,act".parse().unwrap();
    assert_eq!(scopes.to_string(), "act, train");
    let error = "act,Train".parse::<Scopes>().unwrap_err();
    assert_eq!(error, "`Train` is no scope; there are act, train, infer, admin");
}
