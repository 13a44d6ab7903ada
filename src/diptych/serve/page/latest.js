// Of questions that follow each other only the last may be answered: starting one drops the one before.

export class Latest {
  #asking = new AbortController();

  start() {
    this.#asking.abort();
    this.#asking = new AbortController();
    return this.#asking.signal;
  }

  stop() {
    this.#asking.abort();
  }
}
