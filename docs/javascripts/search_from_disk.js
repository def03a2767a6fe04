// Browsers start no worker for a page that was opened from disk; there the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise((resolve) => {
        frame.addEventListener("load", () => {
          const scope = frame.contentWindow;
          scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
          const script = scope.document.createElement("script");
          script.addEventListener("load", () => resolve(scope));
          script.src = address;
          scope.document.head.append(script);
        });
      });
      frame.srcdoc = "<!doctype html><title>search</title>";
      document.documentElement.append(frame);
    }

    postMessage(data) {
      this.ready.then((scope) => scope.dispatchEvent(new scope.MessageEvent("message", {data})));
    }
  };
}
