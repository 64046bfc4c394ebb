// One call with connect-web, as a web page would make it: every message is a line of JSON as it arrives.
// node client.js https://host/sage.v1.AgentService/Chat '{"input": "Hi"}' '{"x-sage-user": "maria"}'

import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { fromJson, toJson } from "@bufbuild/protobuf";
import { ErrorInfoSchema } from "./generated/google/rpc/error_details_pb.js";
import { AdminService } from "./generated/sage/v1/admin_service_pb.js";
import { AgentService } from "./generated/sage/v1/agent_service_pb.js";
import { ConversationService } from "./generated/sage/v1/conversation_service_pb.js";

const [address, body, headers] = process.argv.slice(2);
const url = new URL(address);
const [, serviceName, methodName] = url.pathname.split("/");
const service = [AdminService, AgentService, ConversationService].find((one) => one.typeName === serviceName);
const method = service.methods.find((one) => one.name === methodName);
const call = createClient(service, createGrpcWebTransport({ baseUrl: url.origin }))[method.localName];
const request = fromJson(method.input, JSON.parse(body));
const options = { headers: JSON.parse(headers) };

function show(message) {
  console.log(JSON.stringify(toJson(method.output, message)));
}

try {
  if (method.methodKind === "server_streaming") {
    for await (const message of call(request, options)) show(message);
  } else {
    show(await call(request, options));
  }
} catch (error) {
  if (!(error instanceof ConnectError)) throw error;
  const [info] = error.findDetails(ErrorInfoSchema);
  const code = Code[error.code].replaceAll(/(?<=[a-z])(?=[A-Z])/g, "_").toLowerCase();
  console.error(JSON.stringify({ code, reason: info?.reason ?? "", metadata: info?.metadata ?? {} }));
  process.exitCode = 1;
}
