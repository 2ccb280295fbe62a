import { svelte } from "@sveltejs/vite-plugin-svelte";
import tailwindcss from "@tailwindcss/vite";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig(({ command }) => ({
  // Built pages find everything relative to the <base> the server writes; the dev server plays the same place.
  base: command === "serve" ? "/ui/" : "./",
  plugins: [svelte({ emitCss: true }), tailwindcss()],
  resolve: { alias: { $lib: here("./src/lib"), $pages: here("./src/pages") } },
  server: {
    // The host stays ours: the API refuses changes that come from a page of another origin.
    proxy: { "/api": { target: process.env.TIDEWHEEL_SERVER ?? "http://127.0.0.1:8080", changeOrigin: false } },
  },
  build: {
    outDir: here("../src/tidewheel/server/ui/assets"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0, // nothing inline: the content security policy forbids it
    reportCompressedSize: false,
    rolldownOptions: {
      // What the page names is asked about each time; what is loaded later has its hash in its name, so that a tab
      // from before an upgrade is told that its parts are gone instead of getting others.
      output: {
        entryFileNames: "app.js",
        chunkFileNames: "[name]-[hash].js",
        assetFileNames: "app[extname]",
        // One file of what several pages need, instead of one for each icon; what one or two need stays with them.
        codeSplitting: { groups: [{ name: "shared", test: /src\/lib\/(?!schema\/|components\/Chart)|node_modules\/(?!uplot)/, minShareCount: 3 }] },
      },
    },
  },
}));
