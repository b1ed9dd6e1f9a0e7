// A dashboard as `benchmarks/pictures.py` hands it over (window.DASHBOARD), drawn with Grafana's components.
// What those packages do not have is drawn in substitutes.jsx.

import React from 'react';
import { createRoot } from 'react-dom/client';
import 'uplot/dist/uPlot.min.css';
import { Bars, Heatmap, States } from './substitutes.jsx';

// Required, not imported: their ES modules take CommonJS packages for components (React's error 130).
const { createDataFrame, createTheme, dateTime, getDisplayProcessor, ThemeContext } = require('@grafana/data');
const { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } = require('@grafana/ui');

const CELL = 30;
const GAP = 8;
const COLUMNS = 24;
const PADDING = 16;

const theme = createTheme({ colors: { mode: 'dark' } });
const { title, width, start, end, panels } = window.DASHBOARD;
const timeRange = { from: dateTime(start), to: dateTime(end), raw: { from: dateTime(start), to: dateTime(end) } };

// Grafana's own registry fills these in; it is part of its core, which is not used here.
const LINE = {
  axisPlacement: 'auto', barAlignment: 0, drawStyle: 'line', fillOpacity: 0, gradientMode: 'none',
  hideFrom: { legend: false, tooltip: false, viz: false }, lineInterpolation: 'linear', lineWidth: 1, pointSize: 5,
  scaleDistribution: { type: 'linear' }, showPoints: 'auto', spanNulls: false, stacking: { group: 'A', mode: 'none' },
  thresholdsStyle: { mode: 'off' },
};

function prepared(frames, custom) {
  let seriesIndex = 0;
  return frames.map((one) => {
    const frame = createDataFrame({ name: one.name, fields: one.fields });
    for (const field of frame.fields) {
      const numeric = field.type === 'number';
      field.config = { ...field.config, displayName: field.name, custom: { ...custom, ...field.config.custom } };
      field.state = { seriesIndex: numeric ? seriesIndex++ : 0 };
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
    return frame;
  });
}

const lastOf = (values) => values.findLast((value) => value !== null && value !== undefined);

function Tile({ panel, width, height }) {
  const frames = prepared(panel.frames, {});
  const field = frames[0]?.fields[1];
  const value = field ? lastOf(field.values) : undefined;
  const shown = value === undefined ? { numeric: NaN, text: panel.empty } : field.display(value);
  const sparkline = field && panel.options.graphMode === 'area' ? { x: frames[0].fields[0], y: field } : undefined;
  return <BigValue {...panel.options} value={shown} sparkline={sparkline} theme={theme} width={width} height={height} />;
}

function Lines({ panel, width, height }) {
  return (
    <TimeSeries frames={prepared(panel.frames, LINE)} timeRange={timeRange} timeZone="utc" legend={panel.options.legend}
      width={width} height={height} />
  );
}

function Rows({ panel, width, height }) {
  return <Table data={prepared(panel.frames, {})[0]} width={width} height={height} />;
}

const substitute = (Drawing) => ({ panel, width, height }) => (
  <Drawing frames={prepared(panel.frames, {})} options={panel.options} theme={theme} start={start} end={end}
    width={width} height={height} />
);

const KINDS = {
  stat: Tile, timeseries: Lines, table: Rows,
  barchart: substitute(Bars), heatmap: substitute(Heatmap), 'state-timeline': substitute(States),
};

function Empty({ panel, width, height }) {
  const style = { width, height, color: theme.colors.text.secondary, display: 'grid', placeItems: 'center' };
  return <div style={style}>{panel.empty}</div>;
}

function Panel({ panel, width, height }) {
  const Kind = panel.frames.length || panel.kind === 'stat' ? KINDS[panel.kind] : Empty;
  return (
    <PanelChrome title={panel.title} width={width} height={height} hoverHeader={false}>
      {(innerWidth, innerHeight) => <Kind panel={panel} width={innerWidth} height={innerHeight} />}
    </PanelChrome>
  );
}

function Heading({ panel }) {
  const style = { color: theme.colors.text.primary, fontSize: 16, fontWeight: 500, lineHeight: `${CELL}px` };
  return <div style={style}>{panel.title}</div>;
}

function Placed({ panel }) {
  const column = (width - 2 * PADDING + GAP) / COLUMNS;
  const { x, y, w, h } = panel.place;
  const size = { width: w * column - GAP, height: h * (CELL + GAP) - GAP };
  const style = { position: 'absolute', left: PADDING + x * column, top: PADDING + 40 + y * (CELL + GAP), ...size };
  return <div style={style}>{panel.kind === 'row' ? <Heading panel={panel} /> : <Panel panel={panel} {...size} />}</div>;
}

function Dashboard() {
  const style = { color: theme.colors.text.primary, fontSize: 20, padding: PADDING };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles isExtensionSidebarOpen={false} />
      <div style={style}>{title}</div>
      {panels.map((panel, index) => <Placed key={index} panel={panel} />)}
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('page')).render(<Dashboard />);
