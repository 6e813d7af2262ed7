// Brings widgets to life in a page without a kernel: it reads the state that lies in the
// page, imports each widget's module and lets it draw. A classic script, because
// browsers refuse to load modules from file://; a module made from a Blob they allow.
(() => {
  "use strict";
  const STATE = 'script[type="application/vnd.jupyter.widget-state+json"]';
  const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';

  /** The part of a widget's model that a widget in the page needs. */
  class Model {
    constructor(state) {
      this.state = state;
      this.listeners = new Map();
    }
    get(name) {
      return this.state[name];
    }
    set(name, value) {
      if (this.state[name] === value) return;
      this.state[name] = value;
      this.emit(`change:${name}`, value);
      this.emit("change");
    }
    on(event, listener) {
      this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
    }
    off(event, listener) {
      const left = (this.listeners.get(event) ?? []).filter((x) => listener && x !== listener);
      this.listeners.set(event, left);
    }
    emit(event, value) {
      for (const listener of this.listeners.get(event) ?? []) listener({}, value);
    }
    save_changes() {} // there is no kernel to tell
    send() {}
  }

  const imported = new Map();
  const styled = new Set();

  /** The module of a widget, from its text; a `<style>` for its looks, once each. */
  async function load({ _esm, _css }) {
    if (_css && !styled.has(_css)) {
      styled.add(_css);
      const style = document.createElement("style");
      style.textContent = _css;
      document.head.append(style);
    }
    if (!imported.has(_esm)) {
      const url = URL.createObjectURL(new Blob([_esm], { type: "text/javascript" }));
      imported.set(_esm, import(url).finally(() => URL.revokeObjectURL(url)));
    }
    return (await imported.get(_esm)).default;
  }

  const parse = (script) => JSON.parse(script.textContent);

  function readStates() {
    const scripts = [...document.querySelectorAll(STATE)];
    try {
      return Object.assign({}, ...scripts.map((script) => parse(script).state));
    } catch {
      return {}; // each view will say that its state is missing
    }
  }

  async function start() {
    const states = readStates();
    const texts = window.mhaModules ?? {}; // modules that several pages share
    const models = new Map();
    for (const script of document.querySelectorAll(VIEW)) {
      const id = parse(script).model_id;
      const el = document.createElement("div");
      el.dataset.widget = id;
      script.after(el);
      try {
        if (!states[id]) throw new Error("the page lacks its state, or it is damaged.");
        const { state } = states[id];
        Object.assign(state, texts[state._module]);
        if (!models.has(id)) models.set(id, new Model(state));
        const model = models.get(id);
        const { initialize, render } = await load(state);
        await initialize?.({ model });
        await render({ model, el });
        el.dataset.live = "true";
      } catch (error) {
        el.textContent = `This widget cannot be shown: ${error.message}`;
      }
    }
    document.documentElement.dataset.widgets = "ready";
  }

  if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
  else start();
})();
