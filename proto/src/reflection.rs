//! The services that every server adds to the main services: health checks, and reflection over the .proto files.

use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::HealthReporter;
use tonic_reflection::server::Builder;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

/// Full name of the reflection service.
const REFLECTION_NAME: &str = "grpc.reflection.v1.ServerReflection";

/// Returns the health service (`grpc.health.v1`) and the reflection service (`grpc.reflection.v1`), to add to a
/// server.
///
/// `services` are the full names of the other services (`ReplayServer::<H>::NAME`). Each is `SERVING` at once; the
/// reporter changes the status when the process drains.
pub async fn health_and_reflection(
    services: &[&str],
) -> (HealthReporter, HealthServer<impl Health>, ServerReflectionServer<impl ServerReflection>) {
    let (reporter, health) = tonic_health::server::health_reporter();
    for service in services {
        reporter.set_service_status(service, tonic_health::ServingStatus::Serving).await;
    }
    let reflection = described(services, &[]).build_v1().expect("the descriptors were written by this crate's build");
    (reporter, health, reflection)
}

/// Returns a builder for a reflection service that lists `services`, health, reflection and `more`.
pub(crate) fn described<'a>(services: &'a [&'a str], more: &'a [&'a str]) -> Builder<'a> {
    // Only the served services are listed; the descriptors contain more.
    let always = [tonic_health::pb::health_server::SERVICE_NAME, REFLECTION_NAME];
    let listed = services.iter().chain(more).copied().chain(always);
    listed
        .fold(Builder::configure(), |builder, service| builder.with_service_name(service))
        .register_encoded_file_descriptor_set(crate::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use transport::security::takes_stream;

    /// Returns the path of each method of our services, and true for a method that takes a stream.
    fn methods() -> Vec<(String, bool)> {
        let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap().file;
        let in_file = |file: prost_types::FileDescriptorProto| {
            let package = file.package().to_owned();
            file.service.into_iter().flat_map(move |service| {
                let service_name = format!("{package}.{}", service.name());
                let one = move |method: prost_types::MethodDescriptorProto| {
                    (format!("/{service_name}/{}", method.name()), method.client_streaming())
                };
                service.method.into_iter().map(one)
            })
        };
        let methods: Vec<_> = files.into_iter().flat_map(in_file).collect();
        assert!(methods.len() >= 12, "{methods:?}");
        methods
    }

    #[test]
    fn every_method_of_our_services_has_its_scope_and_the_kind_of_its_requests() {
        for (path, is_stream) in methods() {
            assert_eq!(takes_stream(&path), Some(is_stream), "{path}");
        }
    }
}
