// What @grafana/ui has no component for: states over time, a heatmap, bars by category. Grafana's look, not its code.

import React from 'react';

const LEFT = 150; // pixels for names
const AXIS = 80;
const BOTTOM = 24;

const clock = (time) => new Date(time).toISOString().slice(11, 16);

function colorOf(theme, name) {
  return theme.visualization.getColorByName(name ?? 'text');
}

function Ticks({ theme, start, end, left, width, height }) {
  return [0.1, 0.3, 0.5, 0.7, 0.9].map((share) => (
    <text key={share} x={left + share * width} y={height - 6} fill={theme.colors.text.secondary} fontSize="12"
      textAnchor="middle">{clock(start + share * (end - start))}</text>
  ));
}

function Legend({ theme, entries, height }) {
  return (
    <div style={{ height, display: 'flex', flexWrap: 'wrap', gap: 16, fontSize: 12, color: theme.colors.text.primary }}>
      {entries.map(([name, color]) => (
        <span key={name}>
          <span style={{ display: 'inline-block', width: 14, height: 4, marginRight: 8, verticalAlign: 'middle',
            borderRadius: 2, background: color }} />
          {name}
        </span>
      ))}
    </div>
  );
}

export function States({ frames, theme, start, end, width, height }) {
  const below = BOTTOM;
  const inner = height - below - BOTTOM;
  const row = inner / frames.length;
  const seen = new Map();
  const bars = frames.flatMap((frame, index) => {
    const [time, field] = frame.fields;
    const step = (time.values[1] - time.values[0]) / (end - start) * (width - LEFT);
    return field.values.flatMap((value, at) => {
      if (value === null) {
        return [];
      }
      const shown = field.display(value);
      seen.set(shown.text, shown.color);
      const x = LEFT + (time.values[at] - start) / (end - start) * (width - LEFT);
      return [<rect key={`${index} ${at}`} x={x} y={index * row + 0.1 * row} width={step + 0.5} height={0.8 * row}
        fill={shown.color} fillOpacity="0.7" />];
    });
  });
  return (
    <div>
      <svg width={width} height={height - below}>
        {bars}
        {frames.map((frame, index) => (
          <text key={index} x={LEFT - 8} y={(index + 0.5) * row + 4} textAnchor="end"
            fontSize={Math.min(12, row)} fill={theme.colors.text.primary}>{frame.name}</text>
        ))}
        <Ticks theme={theme} start={start} end={end} left={LEFT} width={width - LEFT} height={height - below} />
      </svg>
      <Legend theme={theme} entries={[...seen]} height={below} />
    </div>
  );
}

export function Heatmap({ frames, theme, start, end, width, height }) {
  const rows = [...frames].sort((a, b) => edge(a) - edge(b));
  const cells = rows.flatMap((frame, index) => frame.fields[1].values.map((value, at) => {
    const below = index ? rows[index - 1].fields[1].values[at] ?? 0 : 0;
    return { index, at, count: value === null ? 0 : Math.max(0, value - below) };
  })).filter((cell) => cell.count > 1e-9);
  const most = Math.max(...cells.map((cell) => cell.count));
  const inner = height - BOTTOM;
  const row = inner / rows.length;
  const step = (width - AXIS) / frames[0].fields[0].values.length;
  const unit = frames[0].fields[1];
  return (
    <svg width={width} height={height}>
      {cells.map(({ index, at, count }) => (
        <rect key={`${index} ${at}`} x={AXIS + at * step} y={inner - (index + 1) * row} width={Math.max(1, step - 1)}
          height={Math.max(1, row - 1)} fill={theme.visualization.getColorByName('blue')}
          fillOpacity={0.15 + 0.85 * Math.sqrt(count / most)} />
      ))}
      {rows.map((frame, index) => index % Math.ceil(rows.length / 8) === 0 && (
        <text key={index} x={AXIS - 8} y={inner - index * row - 2} textAnchor="end" fontSize="12"
          fill={theme.colors.text.secondary}>{named(frame, unit)}</text>
      ))}
      <Ticks theme={theme} start={start} end={end} left={AXIS} width={width - AXIS} height={height} />
    </svg>
  );
}

const edge = (frame) => (frame.name === '+Inf' ? Infinity : Number(frame.name));

function named(frame, field) {
  if (frame.name === '+Inf') {
    return frame.name;
  }
  const { text, suffix } = field.display(Number(frame.name));
  return `${text}${suffix ?? ''}`;
}

export function Bars({ frames, theme, width, height }) {
  const [category, ...parts] = frames[0].fields;
  const totals = category.values.map((_, at) => parts.reduce((sum, part) => sum + (part.values[at] ?? 0), 0));
  const most = 1.05 * Math.max(...totals);
  const inner = height - 2 * BOTTOM;
  const slot = (width - AXIS) / category.values.length;
  const color = (part) => colorOf(theme, part.config.color?.fixedColor);
  return (
    <div>
      <svg width={width} height={height - BOTTOM}>
        {[0, 0.25, 0.5, 0.75, 1].map((share) => {
          const { text, suffix } = parts[0].display(share * most);
          return (
            <g key={share}>
              <line x1={AXIS} x2={width} y1={inner * (1 - share)} y2={inner * (1 - share)}
                stroke={theme.colors.border.weak} />
              <text x={AXIS - 8} y={inner * (1 - share) + (share === 1 ? 12 : 4)} textAnchor="end" fontSize="12"
                fill={theme.colors.text.secondary}>{text}{suffix}</text>
            </g>
          );
        })}
        {category.values.map((name, at) => {
          let below = 0;
          const x = AXIS + (at + 0.1) * slot;
          return (
            <g key={name}>
              {parts.map((part) => {
                const value = part.values[at] ?? 0;
                below += value;
                return <rect key={part.name} x={x} y={inner * (1 - below / most)} width={0.8 * slot}
                  height={inner * value / most} fill={color(part)} fillOpacity="0.8" />;
              })}
              <text x={x + 0.4 * slot} y={height - BOTTOM - 6} textAnchor="middle" fontSize="12"
                fill={theme.colors.text.secondary}>{name}</text>
            </g>
          );
        })}
      </svg>
      <Legend theme={theme} entries={parts.map((part) => [part.name, color(part)])} height={BOTTOM} />
    </div>
  );
}
