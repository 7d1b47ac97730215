package io.grpc;

/**
 * Stands before the class of this name in Google's Pub/Sub emulator, whose parts come from two versions of gRPC. One calls
 * a method that the other lacks, whenever a client leaves; and the stream of that client then swallows messages.
 */
public final class InternalStatus {
  public static final Metadata.Key<String> MESSAGE_KEY = Status.MESSAGE_KEY;
  public static final Metadata.Key<Status> CODE_KEY = Status.CODE_KEY;

  public static StatusRuntimeException asRuntimeExceptionWithoutStacktrace(Status status, Metadata trailers) {
    return new StatusRuntimeException(status, trailers);
  }

  public static StatusRuntimeException asRuntimeException(Status status, Metadata trailers, boolean fillInStackTrace) {
    return new StatusRuntimeException(status, trailers);
  }
}
