// The texts of this page that are hard to read, by WCAG 2.2 AA: each as "ratio < needed: colour on colour: text".
// The background is that of all elements behind, blended; a picture behind a text is not looked at.
() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parsed = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const luminance = colour => {
    const [r, g, b] = colour.map(value => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const chain = element => (element ? [...chain(element.parentElement), element] : []);
  const bad = new Map();
  let looked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.data.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.closest('.sr, option, [disabled]')) continue;
    let back = parsed(matchMedia('(prefers-color-scheme: dark)').matches ? '#121212' : '#fff'), opacity = 1;
    for (const one of chain(element)) {
      const own = getComputedStyle(one);
      back = over(parsed(own.backgroundColor), back);
      opacity *= Number(own.opacity);
    }
    const ink = parsed(style.color);
    const front = over([...ink.slice(0, 3), ink[3] * opacity], back);
    const [light, dark] = [luminance(front), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const needed = large ? 3 : 4.5;
    looked++;
    if (ratio < needed) bad.set(`${style.color} ${back}`, `${ratio.toFixed(2)} < ${needed}: ${style.color} on ${back.slice(0, 3).map(Math.round)}: ${node.data.trim().slice(0, 40)}`);
  }
  return { looked, bad: [...bad.values()] };
}
