/** Where this runs, as far as it can be told: nothing here is needed in a browser. */
interface NodeProcess {
  pid?: number;
  versions?: { node?: string };
  getBuiltinModule?: (name: "node:os") => { hostname(): string } | undefined;
  on(signal: string, listener: () => void): void;
  off(signal: string, listener: () => void): void;
}

/** Node's process, or one that looks like it; undefined in browsers. */
function nodeProcess(): NodeProcess | undefined {
  const { process } = globalThis as { process?: NodeProcess };
  return process?.versions?.node === undefined ? undefined : process;
}

export function hostName(): string {
  return nodeProcess()?.getBuiltinModule?.("node:os")?.hostname() ?? globalThis.location?.hostname ?? "unknown";
}

/** 0 where there is no such thing. */
export function processId(): number {
  return nodeProcess()?.pid ?? 0;
}

/** Calls `stop` for every SIGINT and SIGTERM, until what it returns is called. Does nothing where there are none. */
export function onStopSignals(stop: () => void): () => void {
  const process = nodeProcess();
  if (process === undefined) return () => undefined;
  const signals = ["SIGINT", "SIGTERM"];
  for (const signal of signals) process.on(signal, stop);
  return () => {
    for (const signal of signals) process.off(signal, stop);
  };
}
