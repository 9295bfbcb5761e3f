// A real authorization server (oidc-provider from npm) for an MCP server: argv are its program, its port, the MCP server's
// address, for how many seconds an access token is good, and how it gets to know clients: "register", or by their metadata
// "documents", or "both". Its own pages ask for any name and password.
import { pathToFileURL } from "node:url";

const [program, port, resource, life, clients] = process.argv.slice(2);
const { Provider } = await import(pathToFileURL(program).href);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "signalbox",
      client_secret: "known only to both",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "client_secret_post",
      scope: "tools",
    },
    {
      client_id: "mcp-server",
      client_secret: "introspects",
      grant_types: [],
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "client_secret_post",
    },
  ],
  scopes: ["openid", "offline_access", "tools"],
  cookies: { keys: ["for tests"] },
  ttl: { AccessToken: Number(life), ClientCredentials: Number(life) },
  // Its own guard against addresses of this machine is in the dispatcher that it sends along.
  fetch: (address, { dispatcher, ...options }) => fetch(address, options),
  issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: clients !== "documents" },
    clientIdMetadataDocument: { enabled: clients !== "register", ack: "draft-02" },
    revocation: { enabled: true, allowedPolicy: () => true },
    introspection: { enabled: true, allowedPolicy: () => true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: "tools", audience: resource, accessTokenFormat: "opaque" }),
    },
  },
});
provider.on("grant.success", ({ oidc }) => console.log(`issued ${oidc.params.grant_type}`));
provider.on("grant.error", ({ oidc }, error) => console.log(`refused ${oidc.params?.grant_type} ${error.error_description}`));
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
