/** A door in front of the server that can be shut, cut off and made to say no. */
import http from "node:http";
import { url } from "./server.js";

export class Proxy {
  /** Requests that came, with their ids. */
  seen = [];
  /** How the next requests fare, one word each: a status to answer with, "cut" before or "deaf" after the server did them. */
  fates = [];
  /** Called for every request; may return a fate of its own. */
  judge = () => undefined;
  #server = http.createServer((request, response) => void this.#pass(request, response));
  #sockets = new Set();

  static async open() {
    const proxy = new Proxy();
    proxy.#server.on("connection", (socket) => {
      proxy.#sockets.add(socket);
      socket.on("close", () => proxy.#sockets.delete(socket));
    });
    await proxy.back(0);
    proxy.port = proxy.#server.address().port;
    return proxy;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Nobody answers any more, and nobody listens. */
  async away() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.cut();
    await closed;
  }

  async back(port = this.port) {
    await new Promise((resolve) => this.#server.listen(port, "127.0.0.1", resolve));
  }

  /** All connections break. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close() {
    if (this.#server.listening) await this.away();
  }

  async #pass(request, response) {
    const body = [];
    for await (const chunk of request) body.push(chunk);
    const one = { method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(body).toString() };
    this.seen.push(one);
    const fate = this.judge(one) ?? this.fates.shift();
    if (fate === "cut") return request.socket.destroy();
    if (typeof fate === "number") return response.writeHead(fate, { "Retry-After": "0" }).end("no");
    const onward = http.request(url + request.url, { method: request.method, headers: request.headers }, (answer) => {
      if (fate === "deaf") {
        answer.resume();
        answer.on("end", () => request.socket.destroy());
        return;
      }
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => request.socket.destroy());
    response.on("close", () => onward.destroy());
    onward.end(Buffer.concat(body));
  }
}
